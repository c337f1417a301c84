#!/usr/bin/env python3
"""Tokens/s of the examples, padded and with planned micro-batches; prints a JSON object for each run, then a table in Markdown.

    PATH=BIN:$PATH PYTHONPATH=PACKAGE tokens_per_second.py [--rounds 5] [--steps 3] [NAME ...]

Run with a Python that has the frameworks (tests/frameworks/run makes one, and PACKAGE in it); BIN has penstock-planner. NAME: a row of
EXAMPLES. Within a round every way runs once, in an order that turns. Columns: medians of the rounds with their range, the median of
the rounds' ratios to the first way, and the largest difference of a loss to that of the first way.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# What starts it, the script, its ways.
EXAMPLES = {
    "PyTorch": ([sys.executable], "pytorch/train.py", {"padded": [], "planned": []}),
    "PyTorch, 2 replicas": (TORCHRUN, "pytorch/train.py", {"padded": [], "planned": []}),
    "Trainer": (
        [sys.executable],
        "hugging_face/train.py",
        {way: ["--accumulation", "8"] for way in ("own", "rebalanced", "planned")},
    ),
}


def run(name, way, steps):
    start, script, ways = EXAMPLES[name]
    command = [*start, str(ROOT / "examples" / script), way, "--steps", str(steps), *ways[way]]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(EXAMPLES), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.names:
        ways = list(EXAMPLES[name][2])
        for turn in range(arguments.rounds):
            for number in range(len(ways)):
                way = ways[(number + turn) % len(ways)]
                rows.append({"name": name, "round": turn, "load": os.getloadavg()[0], **run(name, way, arguments.steps)})
                print(json.dumps(rows[-1]), flush=True)
    print("\n| example | way | tokens/s | ratio | largest difference of a loss |\n|---|---|---|---|---|")
    for name in arguments.names:
        for way in EXAMPLES[name][2]:
            own = [row for row in rows if row["name"] == name and row["way"] == way]
            first = [row for row in rows if row["name"] == name and row["way"] == next(iter(EXAMPLES[name][2]))]
            rates = [row["tokens_per_second"] for row in own]
            pairs = list(zip(sorted(own, key=lambda row: row["round"]), sorted(first, key=lambda row: row["round"]), strict=True))
            ratio = statistics.median(a["tokens_per_second"] / b["tokens_per_second"] for a, b in pairs)
            difference = max(abs(x - y) for a, b in pairs for x, y in zip(a["losses"], b["losses"], strict=True))
            rate = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
            print(f"| {name} | {way} | {rate} | {ratio:.2f} | {difference:.1e} |")


if __name__ == "__main__":
    main()
