#!/usr/bin/env python3
"""Balance of the ways that frameworks have beside plans, on the same lengths; prints a table in Markdown.

    PENSTOCK_PLANNER=.../penstock-planner balance.py FRAMEWORK FILE.csv [FILE.csv ...]

FRAMEWORK: megatron | verl | hugging_face | torchtitan. With a Python that has it (tests/frameworks/run makes one) and the package
penstock. PENSTOCK_BINARY=.../penstock in place of PENSTOCK_PLANNER: plans come from that program, which is started for each.

For each file 4 global batches, one after the other; longer samples than a row are left out. Work of a sample is verl's measure
for a dense model of hidden size 4096 (24576 tokens + tokens squared), so both ways are judged by the same that neither
was given alone. Columns, means over the batches:

fullest / mean     work of the fullest rank over the mean of the ranks, summed over the batch
steps' sum / mean  the same where ranks wait for each other after every micro-batch: the sum of each step's fullest
padding            share of padding in the tokens that are computed
micro-batches      of a rank
most tokens        of a micro-batch of one rank, the largest
planning           ms a batch; ours over a connection to a planner of this machine, or with the start of the program
"""
import atexit
import csv
import functools
import importlib.metadata
import importlib.util
import os
import statistics
import sys
import time
from pathlib import Path

# A planner is started while a client is there: gRPC must not close its connections for that.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
ROOT = Path(__file__).resolve().parents[3]
if importlib.util.find_spec("penstock") is None:
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


@functools.cache
def local_planner():
    import penstock

    started = penstock.local(os.environ["PENSTOCK_PLANNER"])
    atexit.register(started.close)
    return started


@functools.cache
def planner(replicas=RANKS):
    """Optimizer state divided over replicas; of one replica alone, memory for the whole state: verl's cap limits micro-batches."""
    profile = str(ROOT / "examples/gpt_7b.json")
    if "PENSTOCK_PLANNER" not in os.environ:
        memory = ("--shard-optimizer-state",) if replicas > 1 else ("--memory-mb", "170000")
        return CommandPlanner(os.environ["PENSTOCK_BINARY"], profile, (*memory, "--threads", "1"))
    from penstock.adapters.connection import ClientPlanner

    memory = {"shard_optimizer_state": True} if replicas > 1 else {"memory_limit_bytes": 170_000_000_000}
    return ClientPlanner(local_planner().client, profile=profile, options=memory)


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


def torchtitan(lengths, ours):
    """Rows of CAP tokens: torchtitan's greedy packing of whole samples (its ChatDataset, of which samples are made here without text),
    each rank's share of the batch for itself; or planned."""
    from penstock.adapters.torchtitan import PlannedRows

    if ours:
        samples = [range(length + 1) for length in lengths]
        return PlannedRows(
            samples, planner(), samples_of_a_batch=len(lengths), row_tokens=CAP, dp_rank=0, dp_world_size=RANKS
        ).rows_of_batch(0)
    return [torchtitan_rows(lengths, rank) for rank in range(RANKS)]


def torchtitan_rows(lengths, rank):
    """[row][place] of what ChatDataset yields: each sample's tokens are its place, so rows say whose they are."""
    from datasets import Dataset
    from torchtitan.hf_datasets.text_datasets import ChatDataset

    class Lengths(ChatDataset):
        def _tokenize_sample(self, sample):
            return [sample["place"]] * sample["tokens"], [0] * sample["tokens"]

    class Tokenizer:
        eos_id = -1

    data = Dataset.from_dict({"place": list(range(len(lengths))), "tokens": lengths}, split="train")
    rows = Lengths(data, Tokenizer(), None, seq_len=CAP, dp_rank=rank, dp_world_size=RANKS)
    return [sorted({place for place in row["input"].tolist() if place >= 0}) for row, _ in rows]


WAYS = {
    "megatron": (megatron, "megatron-core"),
    "verl": (verl, "verl"),
    "hugging_face": (hugging_face, "transformers"),
    "torchtitan": (torchtitan, "torchtitan"),
}
# Computed tokens of a micro-batch of these lengths.
COMPUTED = {
    "end to end": sum,
    "padded": lambda lengths: len(lengths) * max(lengths),
    "rows": lambda lengths: CAP,
}


def measured(way, lengths, ours, shape):
    begin = time.perf_counter()
    ranks = way(lengths, ours)
    seconds = time.perf_counter() - begin
    assert sorted(place for rank in ranks for part in rank for place in part) == list(range(len(lengths)))
    works = [[sum(seven_billion(lengths[place]) for place in part) for part in rank] for rank in ranks]
    parts = [[lengths[place] for place in part] for rank in ranks for part in rank]
    computed = [COMPUTED[shape](part) for part in parts]
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
            shape = {"torchtitan": "rows", "hugging_face": "end to end" if ours else "padded"}.get(name, "end to end")
            batches = batches_of(path)
            way(batches[0], ours)  # imports and caches
            rows = [measured(way, lengths, ours, shape) for lengths in batches]
            columns = list(zip(*rows))
            worst = max(columns[4])
            a, b, padding, count, _, milliseconds = map(statistics.mean, columns)
            print(f"| {Path(path).stem} | {'ours' if ours else 'its own'} | {a:.3f} | {b:.3f} | {padding:.1%} | {count:.1f} | {worst:,} | {milliseconds:.1f} |")


if __name__ == "__main__":
    main()
