"""Writes the curves of a run to Weights & Biases, from RUN/metrics.jsonl.

    pip install wandb
    python to_wandb.py runs/mine --project penstock             # what there is
    python to_wandb.py runs/mine --project penstock --follow    # and what comes, until Ctrl-C

WANDB_MODE=offline needs no account: `wandb sync` sends the folder that it writes later.
"""

import argparse
import json
import pathlib
import time


def flat(row: dict, prefix: str = "") -> dict[str, float]:
    """Numbers of a line under names such as tasks/code/loss."""
    numbers = {}
    for name, value in row.items():
        if isinstance(value, dict):
            numbers |= flat(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers[prefix + name] = value
    return numbers


def complete_lines(file):
    """Those that end: the last one may still be written."""
    while True:
        place = file.tell()
        line = file.readline()
        if not line.endswith("\n"):
            file.seek(place)
            return
        yield json.loads(line)


def newest(rows: list[dict]) -> list[dict]:
    """An iteration that was done again after a failure has a second line, which is the true one; a validation has lines of its own."""
    kept = {}
    for row in rows:
        kept[row["iteration"], "loss" not in row] = row
    return [kept[key] for key in sorted(kept)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, help="folder of `penstock up --run-dir`")
    parser.add_argument("--project", default="penstock")
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()
    import wandb

    settings = options.run / "run.json"
    config = json.loads(settings.read_text(encoding="utf-8")) if settings.exists() else {}
    logged = wandb.init(project=options.project, name=options.run.name, config=config)
    # Lines of one iteration come at different times, and may come again.
    logged.define_metric("iteration")
    logged.define_metric("*", step_metric="iteration")
    with open(options.run / "metrics.jsonl", encoding="utf-8") as file:
        for row in newest(list(complete_lines(file))):
            logged.log(flat(row))
        try:
            while options.follow:
                for row in complete_lines(file):
                    logged.log(flat(row))
                time.sleep(1)
        except KeyboardInterrupt:
            pass
    logged.finish()


if __name__ == "__main__":
    main()
