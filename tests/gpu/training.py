"""The training runs: what `penstock up` is asked for, and which figures of its summary are kept."""
import json

import dataset
import step

MOST_TOKENS = 2048
ITERATIONS = 12
# Beside the time that one run takes with its profile, which is much less on a GPU that can train at all.
LIMIT_S = 75
KEPT = ("tokens_per_second", "planned_iteration_ms", "measured_iteration_ms", "prediction_error", "predicted_bubble", "bubble",
        "padding_efficiency", "planned_peak_bytes", "measured_peak_bytes", "first_loss", "last_loss")

SIZES = {
    "gpt": ["--architecture", "gpt", "--layers", "8", "--hidden", "1024", "--heads", "16", "--ffn", "4096"],
    "t5": ["--architecture", "t5", "--encoder-layers", "4", "--decoder-layers", "4", "--hidden", "1024", "--heads", "16", "--ffn",
           "4096"],
}


class Training:
    """A run of a model ("gpt", "t5") on so many GPUs."""

    def __init__(self, model, dtype, pipeline=1, replicas=1, flags=()):
        self.model = model
        self.dtype = dtype
        self.pipeline = pipeline
        self.replicas = replicas
        self.flags = list(flags)

    @property
    def gpus(self):
        return self.pipeline * self.replicas

    @property
    def name(self):
        mesh = "pp {} dp {}".format(self.pipeline, self.replicas)
        return " ".join(["{}, {}, {}".format(self.model.upper(), self.dtype, mesh)] + self.flags[-1:])


SCHEDULES = ("1f1b", "ready-first", "split-backward", "interleaved")
RUNS = ([Training(model, dtype) for model in ("gpt", "t5") for dtype in ("bfloat16", "float32")] +
        [Training("gpt", "bfloat16", pipeline=2, flags=["--schedule", schedule]) for schedule in SCHEDULES] +
        [Training("gpt", "bfloat16", replicas=2), Training("t5", "bfloat16", pipeline=2)])


def import_dataset(penstock, environment, folder, model):
    """The dataset's prefix, made the first time. Raises RuntimeError."""
    prefix = folder / "data" / model
    if not prefix.with_suffix(".idx").exists():
        prefix.parent.mkdir(parents=True, exist_ok=True)
        lines = folder / "{}.jsonl".format(model)
        dataset.write(lines, with_input=model == "t5", most=MOST_TOKENS)
        ended = step.run([penstock, "dataset", "import", "--out", prefix, lines], environment, LIMIT_S)
        if ended.status != 0:
            raise RuntimeError("penstock dataset import: " + ended.reason(LIMIT_S))
    return prefix


def command(run, penstock, data, run_dir):
    return [penstock, "up", "--json", "--device", "cuda:0..{}".format(run.gpus - 1) if run.gpus > 1 else "cuda:0", "--dataset", data,
            *SIZES[run.model], "--dtype", run.dtype, "--vocab", dataset.VOCAB, "--max-length", MOST_TOKENS, "--global-batch", 64,
            "--pp", run.pipeline, "--dp", run.replicas, *run.flags, "--iterations", ITERATIONS, "--lr", "3e-4", "--no-checkpoints",
            "--profile-seconds", 4, "--max-restarts", 0, "--run-dir", run_dir]


def summary_of(output):
    """The JSON object that `up` ends with; None where it did not get so far."""
    for line in reversed(output.strip().splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return None


def train(run, penstock, environment, folder, limit_s):
    """One run, as an Outcome."""
    try:
        data = import_dataset(penstock, environment, folder, run.model)
    except RuntimeError as error:
        return step.Outcome(run.name, "failed", str(error))
    run_dir = folder / "runs" / run.name.replace(" ", "-").replace(",", "")
    ended = step.run(command(run, penstock, data, run_dir), environment, limit_s)
    reason = ended.reason(limit_s)
    summary = summary_of(ended.output)
    if not reason and not summary:
        reason = "it printed no summary"
    figures = {key: summary[key] for key in KEPT if key in summary} if summary else {}
    return step.Outcome(run.name, "failed" if reason else "passed", reason, ended.seconds, figures)
