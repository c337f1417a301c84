#!/usr/bin/env python3
"""What cutting passes into parts costs the planner: planning time and bytes of the plan, beside plans of whole micro-batches (--most-parts 1).

The analytic profile of a Qwen3 30B-A3B on 64 ranks of 141 GB (examples/qwen3_30b_a3b.json), 576 samples of at most 8,192 tokens, packed, as in
docs/results. Each case is planned --rounds times with parts and without, by turns, on one thread; medians, and the ratio of both.

Usage: ctest --test-dir build/release -R python_package_is_made
       PYTHONPATH=build/release/tests/python/package:$HOME/.cache/penstock/python tests/bench/experts/cutting_costs.py --data FOLDER [--rounds 5]

FOLDER/lengths has the *.csv files.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from google.protobuf import json_format
from penstock.v1 import plan_pb2

ROOT = Path(__file__).resolve().parents[3]
MESHES = {"dp 8 x cp 8": ["--dp", "8", "--cp", "8"], "pp 2 x dp 4 x cp 8": ["--pp", "2", "--dp", "4", "--cp", "8"],
          "pp 4 x dp 2 x cp 8": ["--pp", "4", "--dp", "2", "--cp", "8"]}
LENGTHS = {"code": ("code_files.csv", 30144, 576), "multitask": ("multitask_train.csv", 30000, 2304)}


def plan(options, folder, lengths, mesh, more):
    """What `plan --json` says, and the bytes of the plan as a message."""
    name, first, samples = LENGTHS[lengths]
    out = Path(folder) / "plan.json"
    command = [options.bin / "penstock", "plan", "--profile", ROOT / "examples/qwen3_30b_a3b.json", "--shard-optimizer-state", "--memory-mb", "141000",
               "--layout", "packed", "--lengths", options.data / "lengths" / name, "--max-length", "8192", "--rows", f"{first}:{first + samples}",
               "--threads", "1", "--ep", "8", "--out", out, "--json", *MESHES[mesh], *more]
    said = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    written = json_format.ParseDict(json.loads(out.read_text())["plan"], plan_pb2.Plan(), ignore_unknown_fields=True)
    return said, written.ByteSize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--bin", default=ROOT / "build/release/bin", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| mesh, ep 8 | lengths | micro-batches, in parts | planning ms, whole | parts | ratio | plan bytes, whole | parts | ratio |\n|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for mesh in MESHES:
            for lengths in LENGTHS:
                times = {"whole": [], "parts": []}
                last = {}
                for _ in range(options.rounds):
                    for kind, more in (("whole", ["--most-parts", "1"]), ("parts", [])):
                        last[kind] = plan(options, folder, lengths, mesh, more)
                        times[kind].append(last[kind][0]["planning_ms"])
                whole, parts = (statistics.median(times[kind]) for kind in ("whole", "parts"))
                said, size = last["parts"]
                print(f"| {mesh} | {lengths} | {said['micro_batches']}, {said['expert_rows']['micro_batches_in_parts']} | {whole:.0f} | {parts:.0f} | "
                      f"{parts / whole:.2f} | {last['whole'][1]:,} | {size:,} | {size / last['whole'][1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
