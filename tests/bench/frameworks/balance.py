#!/usr/bin/env python3
"""Balance of the ways that frameworks have beside plans, on the same lengths; prints a table in Markdown.

    PENSTOCK_BINARY=.../penstock balance.py FRAMEWORK FILE.csv [FILE.csv ...]     FRAMEWORK: megatron | verl | hugging_face

For each file 4 global batches, one after the other; longer samples than a row are left out. Work of a sample is verl's measure
for a dense model of hidden size 4096 (24576 tokens + tokens squared), so both ways are judged by the same that neither
was given alone. Columns, means over the batches:

fullest / mean     work of the fullest rank over the mean of the ranks, summed over the batch
steps' sum / mean  the same where ranks wait for each other after every micro-batch: the sum of each step's fullest
padding            share of padding in the tokens that are computed
micro-batches      of a rank
most tokens        of a micro-batch of one rank, the largest
planning           ms a batch; ours with the start of the program (`penstock plan`, one thread)
"""
import csv
import importlib.metadata
import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "planner/client/python"))

from penstock.adapters.command import CommandPlanner
from penstock.adapters.groups import seven_billion

RANKS, BATCH, BATCHES, CAP = 8, 256, 4, 8192


def lengths_of(path):
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            yield sum(int(value) for name, value in row.items() if name in ("tokens", "input_tokens", "target_tokens"))


def batches_of(path):
    lengths = [length for length in lengths_of(path) if length <= CAP]
    return [lengths[first : first + BATCH] for first in range(0, BATCH * BATCHES, BATCH)]


def planner(replicas=RANKS):
    """Optimizer state divided over replicas; of one replica alone, memory for the whole state: verl's cap limits micro-batches."""
    memory = ("--shard-optimizer-state",) if replicas > 1 else ("--memory-mb", "170000")
    options = (*memory, "--threads", "1")
    return CommandPlanner(os.environ["PENSTOCK_BINARY"], str(ROOT / "examples/gpt_7b.json"), options)


class Group:
    def size(self):
        return RANKS


def megatron(lengths, ours):
    """[rank][micro-batch][place]; a rank with a longest row of CAP tokens, so no sample needs two."""
    from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler
    from penstock.adapters.megatron import PenstockScheduler

    scheduler = PenstockScheduler(CAP, Group(), planner()) if ours else BalancedCPScheduler(CAP, Group())
    _, chosen = scheduler.get_groups_and_subsamples(list(enumerate(lengths)), None)
    return [[step[rank] for step in chosen] for rank in range(RANKS)]


def verl(lengths, ours):
    """Ranks by verl's own get_seqlen_balanced_partitions, as its trainer does; then each rank's micro-batches."""
    import torch
    from penstock.adapters import verl as adapter
    from tensordict import TensorDict
    from verl.utils import seqlen_balancing

    work = [int(seven_billion(length)) for length in lengths]
    ranks = seqlen_balancing.get_seqlen_balanced_partitions(work, RANKS, equal_size=True)
    result = []
    for rank in ranks:
        own = [lengths[place] for place in rank]
        mask = (torch.arange(max(own)).unsqueeze(0) < torch.tensor(own).unsqueeze(1)).long()
        batch = TensorDict({"input_ids": mask, "attention_mask": mask}, batch_size=[len(own)])
        if ours:
            places = adapter.rearrange_micro_batches(batch, CAP, planner=planner(1))[1]
        else:
            places = seqlen_balancing.rearrange_micro_batches(batch, CAP)[1]
        result.append([[rank[place] for place in part] for part in places])
    return result


def hugging_face(lengths, ours):
    """A Trainer of 8 processes with as many accumulation steps as the batch needs at CAP tokens a row without padding."""
    from penstock.adapters.hugging_face import PlannedSampler
    from transformers.trainer_pt_utils import BatchRebalanceSampler

    steps = -(-sum(lengths) // (RANKS * CAP)) + 1
    options = {"shuffle": False, "rank": 0}
    if ours:
        sampler = PlannedSampler(lengths, BATCH, RANKS, steps, planner=planner(), **options)
    else:
        sampler = BatchRebalanceSampler(lengths, BATCH, RANKS, steps, **options)
    return sampler._assign(list(range(BATCH)), lengths)


WAYS = {"megatron": (megatron, "megatron-core"), "verl": (verl, "verl"), "hugging_face": (hugging_face, "transformers")}


def measured(way, lengths, ours, padded):
    begin = time.perf_counter()
    ranks = way(lengths, ours)
    seconds = time.perf_counter() - begin
    assert sorted(place for rank in ranks for part in rank for place in part) == list(range(len(lengths)))
    works = [[sum(seven_billion(lengths[place]) for place in part) for part in rank] for rank in ranks]
    parts = [[lengths[place] for place in part] for rank in ranks for part in rank]
    computed = [len(part) * max(part) if padded else sum(part) for part in parts]
    mean = sum(map(sum, works)) / RANKS
    steps = max(map(len, works))
    in_step = sum(max(rank[step] if step < len(rank) else 0 for rank in works) for step in range(steps))
    return (
        max(map(sum, works)) / mean, in_step / mean, 1 - sum(lengths) / sum(computed),
        statistics.mean(map(len, ranks)), max(computed), seconds * 1000,
    )


def main():
    name, files = sys.argv[1], sys.argv[2:]
    way, package = WAYS[name]
    print(f"{package} {importlib.metadata.version(package)}, {RANKS} ranks, {BATCHES} batches of {BATCH}, at most {CAP} tokens a sample; load {os.getloadavg()[0]:.1f}\n")
    print("| lengths | way | fullest / mean | steps' sum / mean | padding | micro-batches | most tokens | planning ms |\n|---|---|---|---|---|---|---|---|")
    for path in files:
        for ours in (False, True):
            batches = batches_of(path)
            way(batches[0], ours)  # imports and caches
            rows = [measured(way, lengths, ours, padded=name == "hugging_face" and not ours) for lengths in batches]
            columns = list(zip(*rows))
            worst = max(columns[4])
            a, b, padding, count, _, milliseconds = map(statistics.mean, columns)
            print(f"| {Path(path).stem} | {'ours' if ours else 'its own'} | {a:.3f} | {b:.3f} | {padding:.1%} | {count:.1f} | {worst:,} | {milliseconds:.1f} |")


if __name__ == "__main__":
    main()
