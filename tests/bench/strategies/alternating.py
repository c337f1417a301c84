#!/usr/bin/env python3
"""What a pool of strategies gains where batches differ: trains a GPT on two ranks, one thread each, on a pool of dp 2 and cp 2 and
on each of them alone, with shares of parameters and without.

About every second batch has a long sample, joined from real ones, that is as long as all others of a batch together; the rest are
short. Which batches have one is the order of samples' affair, the same for all variants. Ratios are iteration times of the pool
divided by those of the variant in the same round, beside the same ratio of the planned times (../alternating_runs.py).

    tests/bench/strategies/alternating.py --data /data/multitask_tokens.jsonl.gz     # JSON rows on stdout, a table on stderr

Samples are lines {"input": [...], "target": [...]}, their ids taken modulo --vocab. Needs
`cmake --build build/release --target penstock penstock-planner penstock-worker`.
"""
import argparse
import itertools
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import alternating_runs as runs  # noqa: E402

POOL = "pool"
VARIANTS = {
    POOL: ["--strategies", "pp 1 x dp 2; pp 1 x dp 1 x cp 2"],
    "dp 2, shares": ["--pp", "1", "--dp", "2", "--parameter-shares"],
    "cp 2, shares": ["--pp", "1", "--cp", "2", "--parameter-shares"],
    "dp 2": ["--pp", "1", "--dp", "2"],
    "cp 2": ["--pp", "1", "--cp", "2"],
}
BATCHES = 32


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs.add_arguments(parser)
    parser.set_defaults(max_length=4096, global_batch=16, iterations=17, hidden=128, models="gpt")
    return parser.parse_args()


def mixed_samples(samples, global_batch, max_length):
    """Of BATCHES batches' samples, half as many long ones as there are batches."""
    source = itertools.cycle(samples)
    short = [next(source) for _ in range(BATCHES * global_batch - BATCHES // 2)]
    length = min(max_length, global_batch * sum(map(len, short)) // len(short))
    mixed = short
    for i in range(BATCHES // 2):
        long = []
        while len(long) < length:
            long += next(source)
        mixed.insert(i * 2 * global_batch, long[:length])
    return mixed, length


def import_samples(args, mixed, folder):
    path = os.path.join(folder, "samples.jsonl")
    with open(path, "w") as out:
        out.writelines(json.dumps({"tokens": sample}) + "\n" for sample in mixed)
    dataset = os.path.join(folder, "data")
    runs.run([os.path.join(args.bin, "penstock"), "dataset", "import", "--out", dataset, path])
    return dataset


def table(rows):
    lines = [f"{'variant':<14}{'tokens/s':>10}{'planned ms':>12}{'measured ms':>13}{'planned/pool':>22}{'measured/pool':>24}{'loss':>10}"]
    for variant in VARIANTS:
        planned = runs.with_range([1 / ratio for ratio in runs.ratios(rows, variant, POOL, "planned_iteration_ms")])
        measured = runs.with_range([1 / ratio for ratio in runs.ratios(rows, variant, POOL, "measured_iteration_ms")])
        lines.append(f"{variant:<14}{runs.median(rows, variant, 'tokens_per_second'):>10,.0f}"
                     f"{runs.median(rows, variant, 'planned_iteration_ms'):>12.1f}"
                     f"{runs.median(rows, variant, 'measured_iteration_ms'):>13.1f}{planned:>22}{measured:>24}"
                     f"{runs.median(rows, variant, 'last_loss'):>10.4f}")
    return "\n".join(lines)


def main():
    args = arguments()
    short = [sample for sample in runs.read_samples(args.data, args.vocab) if len(sample) <= args.max_length // 8]
    mixed, length = mixed_samples(short, args.global_batch, args.max_length)
    with tempfile.TemporaryDirectory() as folder:
        dataset = import_samples(args, mixed, folder)
        rows = []
        for turn in range(args.rounds):
            profile = runs.measure_profile(args, "gpt", folder)
            rows += runs.one_round(args, "gpt", VARIANTS, dataset, profile, folder, {"long": length}, turn)
        print(table(rows), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
