#!/usr/bin/env python3
"""What a forward pass and a backward pass of two micro-batches take that go through a stage together, each computing while the other's rows travel, and what plans take today for the
two: a table by tokens of a rank.

By the formulas of the contract (proto/penstock/v1/execution.md, section 7) for layers with experts that ranks divide, without recompute, samples of 2,048 tokens that no rank shares:

- in order: one thing after the other;
- weights: products for weights beside exchanges, as plans without parts have it;
- parts: each pass in 2 to 4 parts in turn, the best number of them;
- joint: both passes whole, in turn, as if each were a part (docs/decisions/2026-11-30-joint-passes.md). No plan has them.

Milliseconds of the layers of a stage, and in parentheses what of it is waiting.

Usage: tests/bench/experts/joint_passes.py [--profile FILE] [--layers 12] [--ranks 8] [--link intra|inter]
"""

import argparse
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = 2048
MOST_PARTS = 4


class Layer:
    """Of so many tokens on a rank, nanoseconds."""

    def __init__(self, file, ranks, link, tokens):
        model, profile = file["model"], file["profile"]
        cost = next(layer for layer in profile["layers"] if layer["name"] == "layer")
        time, cluster = cost["forward"], profile["cluster"]
        slower = 1 + time["half_efficiency_tokens"] / tokens
        squares = tokens * SAMPLE
        self.forward = time["fixed_ns"] + (time["target_token_ns"] * tokens + time["target_square_ns"] * squares) * slower
        self.backward = self.forward * cost["backward_ratio_none"]
        self.weight = self.backward * (1 - cost["backward_input_share"])
        of_experts = model["experts_per_token"] * 3 * model["ffn"]
        head = model["attention_inner"] / model["heads"]
        of_others = model["experts"] + 2 * model["attention_inner"] + 2 * model["key_value_heads"] * head
        self.of_experts = self.weight * of_experts / (of_experts + of_others)
        speed = cluster[f"{link}_node_collective_bytes_per_second"]
        rows = tokens * model["experts_per_token"] * (ranks - 1) / ranks
        latency = float(cluster[f"{link}_node_latency_ns"])
        self.rows = latency + rows * 2 * model["hidden"] / speed * 1e9
        self.gradients = latency + rows * (2 * model["hidden"] + 16) / speed * 1e9

    def forward_steps(self):
        """(before, exchange, after) of its exchanges, and what is computed behind them."""
        middle = min(self.of_experts, self.forward)
        return [(self.forward - middle, self.rows, 0), (middle, self.rows, 0)], 0

    def backward_steps(self):
        rest = self.backward - self.weight - self.of_experts
        return [(0, self.gradients, 0), (self.of_experts, self.gradients, self.of_experts)], rest


def in_turn(lists):
    """What a rank waits for: `lists` of (exchanges of all layers, what is computed behind the last one)."""
    now = line = 0.0
    arrived = [0.0] * len(lists)
    for step in range(len(lists[0][0])):
        for part, (steps, _) in enumerate(lists):
            before, exchange, after = steps[step]
            now = max(now, arrived[part]) + before
            line = arrived[part] = max(line, now) + exchange
            now += after
    for part, (_, behind) in enumerate(lists):
        now = max(now, arrived[part]) + behind
    return now - sum(sum(before + after for before, _, after in steps) + behind for steps, behind in lists)


def of_stack(layer_steps, layers):
    """A layer's rest is computed before the next layer's first exchange."""
    (first, *others), rest = layer_steps
    later = (first[0] + rest, *first[1:])
    return [first, *others] + [later, *others] * (layers - 1), rest


def whole(layer, layers):
    """(computing, waiting in order, waiting with products beside exchanges) of both passes."""
    computing = layers * (layer.forward + layer.backward)
    waiting = layers * 2 * (layer.rows + layer.gradients)
    left = layer.weight
    beside_return = min(layer.gradients, layer.of_experts)
    beside_arrival = min(layer.gradients, left - beside_return)
    return computing, waiting, waiting - layers * beside_return - (layers - 1) * beside_arrival


def parts(file, ranks, link, tokens, layers):
    """(all, waiting) with the best number of parts, of both passes alike."""
    found = []
    for count in range(2, MOST_PARTS + 1):
        part = Layer(file, ranks, link, tokens / count)
        # Products of weights other than experts', which a backward pass makes when nothing is waited for.
        waiting = in_turn([of_stack(part.forward_steps(), layers)] * count) + in_turn([of_stack(part.backward_steps(), layers)] * count)
        found.append((count * layers * (part.forward + part.backward) + waiting, waiting))
    return min(found)


def joint(layer, layers):
    computing = layers * (layer.forward + layer.backward)
    lists = [of_stack(layer.forward_steps(), layers), of_stack(layer.backward_steps(), layers)]
    waiting = min(in_turn(lists), in_turn(lists[::-1]))
    return computing + waiting, waiting


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", type=Path, default=ROOT / "examples/qwen3_30b_a3b.json")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--link", choices=["intra", "inter"], default="intra")
    options = parser.parse_args()
    file = json.loads(options.profile.read_text())
    print("| tokens of a rank | in order | weights | parts | joint | best of today / joint |\n|---|---|---|---|---|---|")
    for samples in (0.25, 0.5, 1, 2, 4, 9):
        tokens = samples * SAMPLE
        layer = Layer(file, options.ranks, options.link, tokens)
        computing, in_order, weights = whole(layer, options.layers)
        takes = [(computing + in_order, in_order), (computing + weights, weights), parts(file, options.ranks, options.link, tokens, options.layers),
                 joint(layer, options.layers)]
        cells = " | ".join(f"{all_of / 1e6:,.1f} ({waiting / 1e6:,.1f})" for all_of, waiting in takes)
        print(f"| {tokens:,.0f} | {cells} | {min(took for took, _ in takes[:3]) / takes[3][0]:.3f} |")


if __name__ == "__main__":
    main()
