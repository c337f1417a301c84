"""Trains the same model on the same real samples in several variants, so that their times can be compared.

Every variant runs once in each round, in an order that turns, so that each has a run of every other one beside it: one run
varies by 8 % on a small machine. What counts is the ratio of two runs of one round; its median and range over the rounds.
"""
import gzip
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

MODELS = {
    "gpt": ["--architecture", "gpt", "--layers", "8"],
    "t5": ["--architecture", "t5", "--encoder-layers", "4", "--decoder-layers", "4"],
    "experts": ["--architecture", "gpt", "--layers", "4", "--experts", "8", "--experts-per-token", "2"],
}
MODEL_SPECS = {
    "gpt": {"architecture": "ARCHITECTURE_GPT", "layers": 8},
    "t5": {"architecture": "ARCHITECTURE_T5", "encoderLayers": 4, "decoderLayers": 4},
    "experts": {"architecture": "ARCHITECTURE_GPT", "layers": 4, "experts": 8, "expertsPerToken": 2, "feedForwardBiases": "BIASES_NONE"},
}
KEPT = ("tokens_per_second", "planned_iteration_ms", "measured_iteration_ms", "predicted_bubble", "bubble", "planning_ms",
        "prediction_error", "padding_efficiency", "last_loss")


def add_arguments(parser, needs_data=True):
    parser.add_argument("--data", required=needs_data, help="samples, JSON lines, .gz or not")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"), help="folder of the binaries")
    parser.add_argument("--models", default="gpt,t5")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=10, help="of a run; the first is not counted")
    parser.add_argument("--look-ahead", type=int, help="iterations planned ahead; all of a run, so with the profile as it was measured, where "
                        "it is not given")
    parser.add_argument("--global-batch", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--profile-seconds", type=int, default=10)


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def read_lines(path, vocab):
    """The samples of a file, their ids modulo the vocabulary: {"input": ..., "target": ...} or {"tokens": ...}."""
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt") as source:
        for line in source:
            sample = json.loads(line)
            yield {key: [token % vocab for token in sample[key]] for key in ("input", "target", "tokens") if key in sample}


def read_samples(path, vocab):
    """Input and target of each sample as one sequence."""
    return [[token for part in sample.values() for token in part] for sample in read_lines(path, vocab)]


def import_samples(args, folder):
    path = os.path.join(folder, "samples.jsonl")
    with open(path, "w") as out:
        out.writelines(json.dumps(sample) + "\n" for sample in read_lines(args.data, args.vocab))
    dataset = os.path.join(folder, "data")
    run([os.path.join(args.bin, "penstock"), "dataset", "import", "--out", dataset, path])
    return dataset


def measure_profile(args, model, folder, more=()):
    """One profile for all variants: what they plan with is the same. Two workers measure side by side, as two train: they slow each
    other down. `more`: further flags of `penstock profile measure`."""
    spec = dict(MODEL_SPECS[model], hidden=args.hidden, heads=4, ffn=4 * args.hidden, vocab=args.vocab,
                maxSequenceLength=args.max_length, dtype="DATA_TYPE_FLOAT32")
    described = os.path.join(folder, model + ".json")
    with open(described, "w") as out:
        json.dump(spec, out)
    profile = os.path.join(folder, model + ".profile.json")
    one_thread = dict(os.environ, OMP_NUM_THREADS="1", PENSTOCK_CACHE=os.path.join(folder, "cache"))
    # `measure` takes a model out of a profile: of one that is measured in a moment.
    run([os.path.join(args.bin, "penstock-worker"), "profile", "--model-json", described, "--out", profile, "--threads", "1",
         "--seconds", "0.5"], env=one_thread)
    run([os.path.join(args.bin, "penstock"), "profile", "measure", "--model", profile, "--out", profile, "--workers", "2",
         "--threads", "1", "--seconds", str(args.profile_seconds), *more], env=one_thread)
    return profile


def up_command(args, model, dataset, profile, run_dir, iterations):
    """`penstock up` of ranks of one thread each; of the planning and the mesh nothing is said."""
    return [os.path.join(args.bin, "penstock"), "up", "--dataset", dataset, "--profile", profile, "--threads", "1", "--no-checkpoints",
            "--global-batch", str(args.global_batch), "--max-length", str(args.max_length), "--iterations", str(iterations), "--hidden",
            str(args.hidden), "--heads", "4", "--ffn", str(4 * args.hidden), "--vocab", str(args.vocab), "--run-dir", str(run_dir),
            *MODELS[model]]


def train(args, model, flags, dataset, profile, run_dir):
    """The summary of a run."""
    command = up_command(args, model, dataset, profile, run_dir, args.iterations)
    return json.loads(run([*command, "--json", "--look-ahead", str(args.look_ahead or args.iterations), *flags]))


def first_and_later(run_dir):
    """What the first iteration was planned to take, and medians of what those of the second half of a run were planned to take, and
    took. With a small --look-ahead these were planned with costs that follow what was measured."""
    with open(os.path.join(run_dir, "metrics.jsonl")) as lines:
        iterations = [json.loads(line) for line in lines]
    later = iterations[len(iterations) // 2:]
    return {"first_planned_ms": iterations[0]["planned_ms"],
            "later_planned_ms": statistics.median(iteration["planned_ms"] for iteration in later),
            "later_measured_ms": statistics.median(iteration["measured_ms"] for iteration in later)}


def one_round(args, model, variants, dataset, profile, folder, more, turn):
    """Runs every variant (name: flags) once, prints a JSON row for each run with what is in `more`, and returns the rows."""
    names = list(variants)
    shift = turn % len(names)
    rows = []
    for name in names[shift:] + names[:shift]:
        run_dir = os.path.join(folder, "-".join([model, *map(str, more.values()), name, str(turn)]))
        summary = train(args, model, variants[name], dataset, profile, run_dir)
        row = {"model": model, **more, "variant": name, "round": turn}
        row.update({key: summary[key] for key in KEPT})
        row.update(first_and_later(run_dir))
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def alternate(args, model, variants, dataset, profile, folder, more):
    """`args.rounds` rounds of every variant on the same samples; returns all rows."""
    return [row for turn in range(args.rounds)
            for row in one_round(args, model, variants, dataset, profile, folder, more, turn)]


def median(rows, variant, key):
    return statistics.median(row[key] for row in rows if row["variant"] == variant)


def ratios(rows, variant, base, key):
    """Of each round: that of `base` divided by that of `variant`."""
    by_round = {}
    for row in rows:
        by_round.setdefault(row["round"], {})[row["variant"]] = row
    return [own[base][key] / own[variant][key] for own in by_round.values()]


def with_range(values):
    return f"{statistics.median(values):.3f} ({min(values):.2f}-{max(values):.2f})"
