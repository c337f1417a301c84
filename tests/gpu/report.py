"""docs/results/gpu.json and gpu.md: what ran on which GPUs, and how fast."""
import json

BYTES_OF_GIB = 1 << 30


def count(tests, outcome):
    return sum(test["outcome"] == outcome for test in tests)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def with_thousands(value):
    return "{:,.0f}".format(value)


def ratio(measured, planned):
    return "{:.2f}".format(measured / planned) if planned else ""


def run_row(run):
    """Figures of a training run, or why it has none."""
    figures = run["figures"]
    if run["outcome"] != "passed" or "tokens_per_second" not in figures:
        return [run["name"], "{}: {}".format(run["outcome"], run["reason"])] + [""] * 5
    planned, measured = figures["planned_iteration_ms"], figures["measured_iteration_ms"]
    planned_peak, measured_peak = figures.get("planned_peak_bytes", 0), figures.get("measured_peak_bytes", 0)
    return [run["name"], with_thousands(figures["tokens_per_second"]), "{:.1f} / {:.1f}".format(planned, measured),
            ratio(measured, planned), "{:.0%} / {:.0%}".format(figures["predicted_bubble"], figures["bubble"]),
            "{:.2f} / {:.2f}".format(planned_peak / BYTES_OF_GIB, measured_peak / BYTES_OF_GIB),
            "{:.3f} -> {:.3f}".format(figures["first_loss"], figures["last_loss"])]


def speeds(tests):
    rows = []
    for test in tests:
        names = sorted({key.replace("_mb_per_second", "").replace("_latency_ns", "") for key in test["figures"]})
        for name in names:
            rows.append([name.replace("_", " "), with_thousands(test["figures"].get(name + "_mb_per_second", 0)),
                         "{:.1f}".format(test["figures"].get(name + "_latency_ns", 0) / 1000)])
    return rows


def not_passed(results):
    """Tests by reason: a machine with one GPU skips many for the same."""
    reasons = {}
    for test in results:
        if test["outcome"] != "passed":
            reasons.setdefault((test["outcome"], test["reason"]), []).append(test["name"])
    return [[outcome, reason, ", ".join(names)] for (outcome, reason), names in reasons.items()]


def markdown(results):
    machine, tests, runs = results["machine"], results["tests"], results["runs"]
    gpus = ", ".join("{} ({} MiB)".format(gpu["name"], with_thousands(gpu["memory_mib"])) for gpu in machine["gpus"])
    parts = ["# On GPUs, {}".format(results["date"]),
             "Written by `tests/gpu/run`, in {:.0f} s.".format(results["seconds"]),
             "- GPUs: {}\n- driver {}, LibTorch {}".format(gpus, machine["driver"], machine["libtorch"]),
             "## Tests",
             "{} passed, {} failed, {} skipped, {} not run.".format(
                 *(count(tests, outcome) for outcome in ("passed", "failed", "skipped", "not run")))]
    if not_passed(tests):
        parts.append(table(["outcome", "reason", "tests"], not_passed(tests)))
    parts += ["## Training", "`penstock up` on samples of very different lengths, of at most 2,048 tokens; the first iteration does not count.",
              table(["run", "tokens/s", "iteration ms, planned / measured", "measured / planned", "bubble, planned / measured",
                     "peak memory GiB, planned / measured", "loss"], [run_row(run) for run in runs])]
    if speeds(tests):
        parts += ["## Between two GPUs", "64 MiB, and 4 KiB for the latency, through NCCL as workers use it.",
                  table(["what", "MB/s", "latency us"], speeds(tests))]
    return "\n\n".join(parts) + "\n"


def write(results, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "gpu.md").write_text(markdown(results))
