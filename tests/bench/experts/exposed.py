#!/usr/bin/env python3
"""What of the exchange of experts' rows is exposed, and what iterations take: passes in order, and with products beside exchanges.

Plans one global batch of each kind of lengths on 64 ranks, from profiles that differ in cluster.exchange_overlap alone, and adds up
what the plan says of each rank's passes.

Usage: tests/bench/experts/exposed.py --penstock build/release/bin/penstock --data FOLDER     (FOLDER/lengths/*.csv)
"""

import argparse
import copy
import csv
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FLOPS = 200e12
# So much that no plan is short of it: how plans divide scarce memory differs by more than exchanges do.
MEMORY_MB = 141_000


def qwen3_30b_a3b():
    return json.loads((ROOT / "examples/qwen3_30b_a3b.json").read_text())


def mixtral_8x7b():
    """The same accelerators; every product at full speed, as there."""
    file = qwen3_30b_a3b()
    hidden, ffn, experts, chosen, key_values = 4096, 14336, 8, 2, 1024
    file["model"].update(layers=32, hidden=hidden, heads=32, attention_inner=hidden, key_value_heads=8, ffn=ffn)
    file["model"].update(experts=experts, experts_per_token=chosen, vocab=32000)
    attention = hidden * (hidden + 2 * key_values) + hidden * hidden
    layer, head = file["profile"]["layers"]
    layer["parameter_bytes"] = 2 * (attention + experts * 3 * hidden * ffn + hidden * experts)
    layer["forward"]["target_token_ns"] = 2 * (attention + chosen * 3 * hidden * ffn + hidden * experts) / FLOPS * 1e9
    layer["forward"]["target_square_ns"] = 2 * hidden / FLOPS * 1e9
    kept = 2 * (6 * hidden + 2 * key_values + chosen * (hidden + 3 * ffn))
    for name, value in {"stored_none": kept, "stored_selective": kept, "stored_full": 2 * hidden, "peak": 2 * kept}.items():
        if name in layer:
            layer[name] = {"target_token_bytes": value}
    head["parameter_bytes"] = 2 * hidden * 32000
    head["forward"]["target_token_ns"] = 2 * hidden * 32000 / FLOPS * 1e9
    file["profile"]["name"] = "mixtral_8x7b"
    return file


MODELS = {"Qwen3 30B-A3B": qwen3_30b_a3b, "Mixtral 8x7B": mixtral_8x7b}


def lengths(data):
    """{kind: [(input, target)]} of 576 samples, of at most 8,192 tokens."""

    def read(name, first):
        with open(data / "lengths" / name, newline="") as source:
            rows = list(csv.DictReader(source))[first : first + 576]
        return [(int(row.get("input_tokens", 0)), int(row["target_tokens" if "target_tokens" in row else "tokens"])) for row in rows]

    uniform = [(0, 2048)] * 576
    return {"uniform, 2,048 tokens": uniform, "multitask": read("multitask_train.csv", 0), "code": read("code_files.csv", 30144)}


def plan(penstock, folder, file, samples, flags):
    (folder / "profile.json").write_text(json.dumps(file))
    with open(folder / "lengths.csv", "w", newline="") as out:
        csv.writer(out).writerows([("input_tokens", "target_tokens"), *samples])
    command = [penstock, "plan", "--profile=profile.json", "--lengths=lengths.csv", "--rows=0:576", "--max-length=8192", "--shard-optimizer-state"]
    subprocess.run([*command, f"--memory-mb={MEMORY_MB}", "--layout=packed", "--out=plan.json", *flags], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "plan.json").read_text())["plan"]


def exchanged_and_exposed(planned):
    """Milliseconds of all passes of a rank, means over the ranks."""
    both = []
    for program in planned["programs"]:
        exchanges = [item["exchange"] for item in program["instructions"] if "exchange" in item]
        both.append([sum(int(exchange.get(name, 0)) for exchange in exchanges) / 1e6 for name in ("expert_ns", "expert_exposed_ns")])
    return [statistics.mean(values) for values in zip(*both)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=str(ROOT / "build/release/bin/penstock"))
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    penstock = str(Path(options.penstock).resolve())
    print("| model | lengths | mesh | iteration ms, in order | beside | ratio | rows ms a rank | exposed, in order | beside | hidden |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, make in MODELS.items():
        for kind, samples in lengths(options.data).items():
            for mesh, flags in {"dp 8 x cp 8, ep 8": ["--dp=8", "--cp=8", "--ep=8"], "pp 2 x dp 4 x cp 8, ep 8": ["--pp=2", "--dp=4", "--cp=8", "--ep=8"]}.items():
                plans = []
                for overlap in (0, 1):
                    file = copy.deepcopy(make())
                    file["profile"]["cluster"]["exchange_overlap"] = overlap
                    with tempfile.TemporaryDirectory() as folder:
                        plans.append(plan(penstock, Path(folder), file, samples, flags))
                before, after = (int(planned["predicted"]["makespan_ns"]) / 1e6 for planned in plans)
                rows, in_order = exchanged_and_exposed(plans[0])
                _, beside = exchanged_and_exposed(plans[1])
                print(f"| {name} | {kind} | {mesh} | {before:,.0f} | {after:,.0f} | {before / after:.3f} | {rows:,.0f} | {in_order:,.0f} | {beside:,.0f} | {1 - beside / rows:.0%} |", flush=True)


if __name__ == "__main__":
    main()
