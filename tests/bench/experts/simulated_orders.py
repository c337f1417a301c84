#!/usr/bin/env python3
"""Runs the models of exchange_orders.py on simulated devices, by the order in which passes do things, and compares what was planned with what ran.

Orders are those that plans have: in order (nothing beside exchanges), weights (`--most-parts 1`), and ours. Every row is three runs of
`penstock up --device simulated`, a planner and a process for each rank, whose first iteration is planned as `penstock plan` plans it and
proven by `penstock verify`. Milliseconds of an iteration as planned and as measured, in the mean over the iterations; "gained" is how many times as
long an iteration takes in order, planned and measured; "worst" is the largest difference of one iteration.

Usage: tests/bench/experts/simulated_orders.py --data FOLDER [--only TEXT] [--routing zipf] [--iterations N]     (FOLDER/lengths/*.csv)
"""

import argparse
import importlib.machinery
import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import exchange_orders

ROOT = Path(__file__).resolve().parents[3]
# Of a profile's cluster, how much of exchanges is hidden where it can be; and flags.
ORDERS = {"in order": (0.0, ["--most-parts", "1"]), "weights": (1.0, ["--most-parts", "1"]), "ours": (1.0, [])}
# As exchange_orders_bench plans.
PLANNING = ["--policy", "dynamic", "--layout", "packed", "--recompute", "none", "--shard-optimizer-state", "--memory-mb", "1099511.627776"]


def load_simulated_rows():
    path = ROOT / "tests/bench/simulated_rows"
    loader = importlib.machinery.SourceFileLoader("simulated_rows", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def flags_of(folder, order, file, samples, replicas, contexts):
    overlap, flags = ORDERS[order]
    file["profile"]["cluster"]["exchange_overlap"] = overlap
    profile, lengths = folder / "profile.json", folder / "lengths.csv"
    profile.write_text(json.dumps(file))
    lengths.write_text("input_tokens,target_tokens\n" + "".join(f"{given},{learnt}\n" for given, learnt in samples))
    mesh = ["--pp", "1", "--dp", str(replicas), "--cp", str(contexts), "--ep", str(contexts)]
    return ["--profile", str(profile), "--lengths", str(lengths), "--rows", f"0:{len(samples)}", *mesh, *PLANNING, *flags]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=ROOT / "build/release/bin", type=Path)
    exchange_orders.add_case_arguments(parser)
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--time-scale", type=float, default=0)
    options = parser.parse_args()
    simulated_rows = load_simulated_rows()
    print("| model | " + " | ".join(f"{order}, planned / measured ms" for order in ORDERS) + " | gained, planned | measured | worst | as `plan` |")
    print("|---" * (len(ORDERS) + 5) + "|")
    good = True
    for name, file, samples, replicas, contexts in exchange_orders.chosen_cases(options):
        rows = {}
        for order in ORDERS:
            with tempfile.TemporaryDirectory() as folder:
                flags = flags_of(Path(folder), order, file, samples, replicas, contexts)
                rows[order] = simulated_rows.measure(str(options.bin / "penstock"), name, "dynamic", order, flags, options)
        worst = max((row["worst"] for row in rows.values()), key=abs)
        as_plan = all(row["as_plan"] for row in rows.values())
        good = good and as_plan and abs(worst) <= 0.02
        gained = {kind: rows["in order"][kind] / rows["ours"][kind] for kind in ("planned_ms", "measured_ms")}
        times = [f"{row['planned_ms']:,.1f} / {row['measured_ms']:,.1f}" for row in rows.values()]
        print(f"| {name} | " + " | ".join(times) + f" | {gained['planned_ms']:.3f} | {gained['measured_ms']:.3f} | {worst:+.2%} | {'yes' if as_plan else 'no'} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
