#!/usr/bin/env python3
"""What ranks wait for rows of experts, and what iterations take, by the order in which passes do things: a table for each model.

Plans with exchange_orders_bench (build/release/bin), which says what the orders are. Milliseconds of the iteration, and of what a rank waits for rows. Models: GPT-2 small and large with experts
in every other layer, as Lancet trains them (Jiang et al., MLSys 2024, section 7: 2 experts a rank, 1 a token, 512 tokens a sample), on
accelerators like A100s and V100s; a Mixtral 8x7B and a Qwen3 30B-A3B on 64 accelerators of 200 TFLOP/s.

--routing says how routers spread rows: evenly, by Zipf's law (the i-th expert of a layer has 1 / i of them, experts in random order), one hot
expert that has a fifth of all rows, one hot rank that has twice its share. Costs know it (CostProfile.expert_loads), as they do once workers have
reported their rows.

Usage: tests/bench/experts/exchange_orders.py --data FOLDER [--only TEXT] [--routing zipf]     (FOLDER/lengths/*.csv)
"""

import argparse
import copy
import csv
import json
import random
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ORDERS = ["in order", "experts cut", "weights", "lancet, 100 us", "lancet", "ours"]
# FLOP/s of a rank; bytes a second of a rank inside a node, between nodes, and copied inside its memory (0.9 of the half of 1,555 and 900 GB/s).
ACCELERATORS = {"A100": (150e12, 250e9, 25e9, 0.7e12), "V100": (60e12, 120e9, 1.5e9, 0.4e12)}


def qwen3_30b_a3b():
    return json.loads((ROOT / "examples/qwen3_30b_a3b.json").read_text())


def keep(layer, of_token, chosen, hidden, of_row):
    """What a layer keeps of a token without recompute: numbers of 16 bits beside experts, and of each of its rows."""
    put_aside = chosen * (2 * hidden + 16)
    layer["stored_none"] = {"target_token_bytes": 2 * (of_token + chosen * (hidden + of_row)) + put_aside}


def mixtral_8x7b():
    """The accelerators of the other; every product at full speed, as there."""
    file = qwen3_30b_a3b()
    flops, hidden, ffn, experts, chosen, key_values = 200e12, 4096, 14336, 8, 2, 1024
    file["model"].update(layers=32, hidden=hidden, heads=32, attention_inner=hidden, key_value_heads=8, ffn=ffn)
    file["model"].update(experts=experts, experts_per_token=chosen, vocab=32000)
    attention = hidden * (hidden + 2 * key_values) + hidden * hidden
    layer, head = file["profile"]["layers"]
    keep(layer, 4 * hidden + 2 * hidden + 2 * key_values, chosen, hidden, 3 * ffn)
    layer["parameter_bytes"] = 2 * (attention + experts * 3 * hidden * ffn + hidden * experts)
    layer["forward"]["target_token_ns"] = 2 * (attention + chosen * 3 * hidden * ffn + hidden * experts) / flops * 1e9
    layer["forward"]["target_square_ns"] = 2 * hidden / flops * 1e9
    head["parameter_bytes"] = 2 * hidden * 32000
    head["forward"]["target_token_ns"] = 2 * hidden * 32000 / flops * 1e9
    file["profile"]["name"] = "mixtral_8x7b"
    return file


def gpt2(hidden, layers, ranks, accelerator):
    """Pairs of a dense layer and one with experts as one layer: attention four times as wide has as many products as the rest of a pair."""
    flops, inside, between, copied = ACCELERATORS[accelerator]
    experts, ffn = 2 * ranks, 4 * hidden
    dense = 2 * 4 * hidden * hidden + 2 * hidden * ffn
    file = qwen3_30b_a3b()
    file["model"].update(layers=layers // 2, hidden=hidden, heads=hidden // 16, attention_inner=4 * hidden, key_value_heads=hidden // 16, ffn=ffn)
    file["model"].update(experts=experts, experts_per_token=1, vocab=50304, feed_forward="FEED_FORWARD_GELU", norm="NORM_LAYER", position="POSITION_LEARNED")
    layer, head = file["profile"]["layers"]
    keep(layer, 2 * (4 * hidden + 3 * hidden + hidden) + 2 * ffn, 1, hidden, 2 * ffn)
    layer["parameter_bytes"] = 2 * (dense + experts * 2 * hidden * ffn + hidden * experts)
    layer["forward"]["target_token_ns"] = 2 * (dense + 2 * hidden * ffn + hidden * experts) / flops * 1e9
    layer["forward"]["target_square_ns"] = 2 * 2 * hidden / flops * 1e9
    head["parameter_bytes"] = 2 * hidden * 50304
    head["forward"]["target_token_ns"] = 2 * hidden * 50304 / flops * 1e9
    file["profile"]["embedding_parameter_bytes"] = 2 * hidden * 50304
    cluster = file["profile"]["cluster"]
    cluster.update(intra_node_bytes_per_second=inside, inter_node_bytes_per_second=between)
    cluster.update(copy_bytes_per_second=copied)
    cluster.update(intra_node_collective_bytes_per_second=inside, inter_node_collective_bytes_per_second=between)
    file["profile"]["name"] = f"gpt2_{hidden}"
    return file


def lengths(data, kind, samples, longest):
    """[(input, target)], of at most so many tokens."""
    if kind == "uniform":
        return [(0, longest)] * samples
    name, first = {"multitask": ("multitask_train.csv", 0), "code": ("code_files.csv", 30144)}[kind]
    with open(data / "lengths" / name, newline="") as source:
        rows = list(csv.DictReader(source))[first : first + samples]
    pairs = [(int(row.get("input_tokens", 0)), int(row["target_tokens" if "target_tokens" in row else "tokens"])) for row in rows]
    cut = [(given, min(learnt, longest)) for given, learnt in pairs]
    return [(min(given, longest - learnt), learnt) for given, learnt in cut]


def cases(data):
    """(name, profile, lengths, replicas, context ranks)."""
    for hidden, layers, size in ((768, 12, "small"), (1024, 24, "large")):
        for accelerator in ACCELERATORS:
            for ranks, each in ((16, 24), (16, 48), (32, 24), (64, 24)):
                file = gpt2(hidden, layers, ranks, accelerator)
                yield f"GPT-2 {size}, {ranks} {accelerator}s, {each} samples each, uniform", file, lengths(data, "uniform", each * ranks, 512), 1, ranks
            file = gpt2(hidden, layers, 16, accelerator)
            yield f"GPT-2 {size}, 16 {accelerator}s, 48 samples each, multitask", file, lengths(data, "multitask", 48 * 16, 512), 1, 16
    for name, file in {"Mixtral 8x7B": mixtral_8x7b(), "Qwen3 30B-A3B": qwen3_30b_a3b()}.items():
        for kind in ("uniform", "multitask", "code"):
            of_kind = lengths(data, kind, 576 if kind != "multitask" else 2304, 2048 if kind == "uniform" else 8192)
            yield f"{name}, 8 replicas of 8 ranks, {kind}", file, of_kind, 8, 8
    yield "Qwen3 30B-A3B, one group of 64 ranks, uniform", qwen3_30b_a3b(), lengths(data, "uniform", 576, 2048), 1, 64
    # As Megatron-Bridge#5094.
    yield "Qwen3 30B-A3B, one group of 16 ranks, uniform", qwen3_30b_a3b(), lengths(data, "uniform", 1024, 4096), 1, 16


def rows_by_expert(routing, experts, chosen, ranks, random_numbers):
    """Shares of a layer's rows; no expert has more than one of a token's."""
    if routing == "hot expert":
        hot = min(max(0.2, 1 / experts), 1 / chosen)
        shares = [hot] + [(1 - hot) / (experts - 1)] * (experts - 1)
    elif routing == "hot rank":
        each = experts // ranks
        shares = [2 / experts if expert < each else (1 - 2 / ranks) / (experts - each) for expert in range(experts)]
    else:
        weights = [1 / (place + 1) for place in range(experts)]
        shares = [weight / sum(weights) for weight in weights]
        while max(shares) > 1 / chosen + 1e-9:
            shares = [min(share, 1 / chosen) for share in shares]
            rest = sum(share for share in shares if share < 1 / chosen)
            more = (1 - sum(shares)) / rest
            shares = [share * (1 + more) if share < 1 / chosen else share for share in shares]
    if routing == "zipf":
        random_numbers.shuffle(shares)
    return shares


def fullest_rank(routing, model, ranks):
    """Rows of the fullest rank over an even share, in the mean over the layers."""
    if routing == "even":
        return 1.0
    random_numbers = random.Random(1)
    each = model["experts"] // ranks
    fullest = []
    for _ in range(model["layers"]):
        shares = rows_by_expert(routing, model["experts"], model["experts_per_token"], ranks, random_numbers)
        fullest.append(max(sum(shares[first : first + each]) for first in range(0, model["experts"], each)) * ranks)
    return sum(fullest) / len(fullest)


def routed(name, file, routing, ranks):
    """The name and the profile with costs that know the routing."""
    fullest = fullest_rank(routing, file["model"], ranks)
    if fullest == 1:
        return name, file
    file = copy.deepcopy(file)
    file["profile"]["expert_loads"] = [{"ranks": ranks, "fullest": fullest}]
    return f"{name}, fullest rank {fullest:.2f}", file


def add_case_arguments(parser):
    """Which models: those of chosen_cases."""
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", default="", help="Models whose names contain this")
    parser.add_argument("--routing", default="even", choices=["even", "zipf", "hot expert", "hot rank"])


def chosen_cases(options):
    """Cases as flags choose them, with costs that know the routing."""
    for name, file, samples, replicas, contexts in cases(options.data):
        if options.only in name:
            yield *routed(name, file, options.routing, contexts), samples, replicas, contexts


def outcomes(bench, file, samples, replicas, contexts):
    with tempfile.TemporaryDirectory() as folder:
        profile, table = Path(folder) / "profile.json", Path(folder) / "lengths.csv"
        profile.write_text(json.dumps(file))
        table.write_text("".join(f"{given},{learnt}\n" for given, learnt in samples))
        return json.loads(subprocess.run([bench, profile, table, str(replicas), str(contexts)], check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=ROOT / "build/release/bin/exchange_orders_bench", type=Path)
    add_case_arguments(parser)
    options = parser.parse_args()
    print("| model | " + " | ".join(ORDERS) + " | waits gone, lancet | ours | at most | experts cut / ours | at most |")
    print("|---" * (len(ORDERS) + 6) + "|")
    for name, file, samples, replicas, contexts in chosen_cases(options):
        found = outcomes(options.bench.resolve(), file, samples, replicas, contexts)
        waits = {order: outcome["waiting_ms"] for order, outcome in found.items()}
        times = {order: outcome["iteration_ms"] for order, outcome in found.items()}
        gone = {order: 1 - waits[order] / waits["in order"] for order in found}
        row = [f"{times[order]:,.1f} ({waits[order]:,.1f})" for order in ORDERS]
        print(f"| {name} | " + " | ".join(row) + f" | {gone['lancet']:.0%} | {gone['ours']:.0%} | {gone['perfect']:.0%} | {times['experts cut'] / times['ours']:.3f} | {times['experts cut'] / times['perfect']:.3f} |", flush=True)


if __name__ == "__main__":
    main()
