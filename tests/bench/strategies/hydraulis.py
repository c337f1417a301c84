#!/usr/bin/env python3
"""Hydraulis' method (Li et al. 2024) beside ours, planned: a 32B Llama on 64 ranks, the settings of pools.py, batch by batch.

Rows: the best fixed mesh of one context rank with packing (a), with our micro-batches (b); Hydraulis as published (c), extended (c+: more
mixes, our schedule where it is faster) and in hindsight (the fastest of all its mixes by our costs), see hydraulis/hydraulis_bench.cc;
the best fixed mesh with stage groups (d); our pool (e). Meshes and pool are those that `penstock advise` finds for the batches, then each
batch is planned as `penstock plan` does. Planning: of a batch, on one thread; ours with the checker, Hydraulis' without.

Usage: tests/bench/strategies/hydraulis.py --penstock build/release/bin/penstock --data FOLDER     (FOLDER/lengths/*.csv)
"""
import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from llama_32b import ROOT, llama_32b
from pools import BATCHES, KINDS, RANKS, SETTINGS, advise

HYDRAULIS = {"published": "(c) Hydraulis, published", "extended": "(c+) extended", "hindsight": "(c+) in hindsight"}
OURS = {"fixed mesh, packed": "(a)", "fixed mesh, dynamic": "(b)", "fixed mesh, stage groups": "(d)", "pool": "(e)"}
POOL = "(e) pool"
HEADS = (52, 64)


def answer(command):
    """Of a program that prints one JSON object; stops where it has none."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def source(profile, data, setting):
    name, _, longest, _ = setting
    return [f"--profile={profile}", f"--lengths={data / 'lengths' / name}", f"--max-length={longest}"]


def hydraulis(bench, profile, data, setting):
    _, rows, _, samples = setting
    command = [bench, *source(profile, data, setting), f"--rows={rows}", f"--gpus={RANKS}", f"--global-batch={samples}", f"--batches={BATCHES}"]
    return answer(command)["batches"]


def flags_of(advice):
    """Of `penstock plan`: what was advised; and its name. None where nothing fits."""
    if "error" in advice:
        return None
    if "strategies" in advice:
        names = "; ".join(one["strategy"] for one in advice["strategies"])
        return ["--strategies", names], names
    best = advice["advice"][0]
    return best["flags"].split(), f"tp {best['tp']} x cp {best['cp']} x pp {best['pp']} x dp {best['dp']}"


def plan_all(penstock, profile, data, setting, flags, first_rows):
    plans = []
    for first in first_rows:
        plans.append(answer([penstock, "plan", *source(profile, data, setting), f"--rows={first}:{first + setting[3]}", "--threads=1", "--json", *flags]))
    return plans


def first_rows_of(setting):
    """Of the batches that `penstock advise` and hydraulis_bench spread over the rows."""
    _, rows, _, samples = setting
    first, last = (int(row) for row in rows.split(":"))
    every = (last - first) // samples
    return [first + samples * ((2 * i + 1) * every // (2 * BATCHES)) for i in range(BATCHES)]


def compare(options, profile, setting):
    """By row: where it is, and by batch the iteration's milliseconds and planning's."""
    batches = [] if options.ours else hydraulis(options.hydraulis, profile, options.data, setting)
    first_rows = first_rows_of(setting)
    rows = {}
    for kind, letter in OURS.items():
        if options.ours and letter not in options.ours:
            continue
        taken = flags_of(advise(options.penstock, profile, options.data, setting, KINDS[kind]))
        if taken is None:
            continue
        plans = plan_all(options.penstock, profile, options.data, setting, taken[0], first_rows)
        rows[f"{letter} {kind}"] = (taken[1], [plan["makespan_ms"] for plan in plans], [plan["planning_ms"] for plan in plans])
    for kind, name in HYDRAULIS.items() if batches else ():
        of_kind = [batch[kind] for batch in batches]
        mixes = [one["mix"] for one in of_kind]
        most = max(set(mixes), key=mixes.count)
        where = f"{most} ({mixes.count(most)} of {len(mixes)} batches; {len(set(mixes))} mixes)"
        rows[name] = (where, [one["makespan_ms"] for one in of_kind], [one["planning_ms"] for one in of_kind if "planning_ms" in one])
    return rows


def print_rows(name, rows, as_json):
    pool = rows[POOL][1]
    if as_json:
        print(json.dumps({"setting": name, "rows": rows}), flush=True)
        return
    for row in sorted(rows):
        where, times, planning = rows[row]
        mean = statistics.mean(times)
        ratios = [ms / best for ms, best in zip(times, pool)]
        no_slower = sum(ratio >= 1 for ratio in ratios)
        took = f"{statistics.median(planning):,.0f}" if planning else ""
        print(f"| {name} | {row} | {mean:,.0f} | {mean / statistics.mean(pool):.2f} | {min(ratios):.2f} to {max(ratios):.2f} | {no_slower} of {len(ratios)} | {took} | {where} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=str(ROOT / "build/release/bin/penstock"))
    parser.add_argument("--hydraulis", default=str(ROOT / "build/release/bin/hydraulis_bench"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ours", nargs="+", choices=sorted(OURS.values()), help="These rows alone, and none of Hydraulis'; (e) is needed")
    parser.add_argument("--heads", nargs="+", type=int, choices=HEADS, default=HEADS)
    parser.add_argument("--settings", default="", help="Those alone whose name has this in it")
    parser.add_argument("--json", action="store_true", help="One object a setting, with every batch")
    options = parser.parse_args()
    if not options.json:
        print("| heads, lengths | row | mean ms | over the pool | by batch | pool no slower | planning ms | on |")
        print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for heads in options.heads:
            profile = Path(folder) / f"llama_32b_{heads}.json"
            profile.write_text(json.dumps(llama_32b(heads)))
            for name, setting in SETTINGS.items():
                if options.settings not in name:
                    continue
                print_rows(f"{heads} heads, {name}", compare(options, profile, setting), options.json)


if __name__ == "__main__":
    main()
