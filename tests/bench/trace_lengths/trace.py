"""A trace of training steps as CSV, with the columns of docs/diagnosis.md: which passes each micro-batch had, and how long each step took."""

import csv
import gzip
from collections import defaultdict
from dataclasses import dataclass

KINDS = {"forward-compute": "forward", "backward-compute": "backward", "backward-input": "backward", "backward-weight": "backward"}
UNITS = {"start_ts": 1.0, "start_ms": 1e-3, "start_us": 1e-6, "start_ns": 1e-9, "duration": 1.0, "duration_ms": 1e-3, "duration_us": 1e-6, "duration_ns": 1e-9}
# Transfers last as long as they wait for the other side; the quickest ones of all hardly wait.
QUICKEST_TRANSFERS = 0.1


class NotReadable(Exception):
    """The trace lacks what lengths could be told from."""


@dataclass
class Step:
    # First start to last end of all ranks, seconds.
    seconds: float
    # By replica, in order: of each micro-batch (kind, stage) -> seconds, kind "forward" or "backward".
    replicas: dict


@dataclass
class Trace:
    steps: list
    stages: int
    # What one transfer between stages takes without waiting.
    transfer_seconds: float

    def micro_batches(self):
        return [one for step in self.steps for replica in step.replicas.values() for one in replica]


def read_rows(path):
    opened = gzip.open(path, "rt", newline="") if str(path).endswith(".gz") else open(path, newline="")
    with opened as file:
        yield from csv.DictReader(file)


def column(row, *names, default=None):
    for name in names:
        if row.get(name) not in (None, ""):
            return row[name]
    if default is None:
        raise NotReadable(f"no column {' or '.join(names)}")
    return default


def seconds(row, first_word):
    for name, unit in UNITS.items():
        if name.startswith(first_word) and row.get(name) not in (None, ""):
            return float(row[name]) * unit
    raise NotReadable(f"no column of {first_word}")


def micro_batches_of(passes, stages):
    """`passes`: (kind, stage) -> [(number or None, start, seconds)]. Micro-batches without a number are counted by their start; two halves of a
    split backward pass have one number, and are one pass here."""
    merged = defaultdict(lambda: defaultdict(float))
    for key, found in passes.items():
        for place, (number, _, length) in enumerate(sorted(found, key=lambda one: one[1])):
            merged[place if number is None else number][key] += length
    expected = {(kind, stage) for kind in ("forward", "backward") for stage in range(stages)}
    if any(set(one) != expected for one in merged.values()):
        raise NotReadable("a micro-batch has not one forward and one backward pass on each stage")
    return [dict(merged[number]) for number in sorted(merged)]


def quickest_transfer(durations):
    return sorted(durations)[int(len(durations) * QUICKEST_TRANSFERS)] if durations else 0.0


def read_trace(path, most_steps=None):
    """Raises NotReadable where columns or passes are missing, or ranks have several parts of a model."""
    passes = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    spans, transfers, stages = {}, [], 0
    for row in read_rows(path):
        step, name = int(column(row, "step", "iteration")), column(row, "optype", "kind")
        start, length = seconds(row, "start"), seconds(row, "duration")
        first, last = spans.get(step, (start, start + length))
        spans[step] = (min(first, start), max(last, start + length))
        if name in KINDS:
            if int(column(row, "mc", "model_chunk", default="0")) > 0:
                raise NotReadable("ranks have several parts of the model")
            stage, number = int(column(row, "stage")), column(row, "mb_id", "micro_batch", default="none")
            stages = max(stages, stage + 1)
            passes[step][int(column(row, "dp_rank", "replica", default="0"))][KINDS[name], stage].append(
                (None if number == "none" else int(number), start, length))
        elif name.endswith(("-send", "-recv")):
            transfers.append(length)
    if not passes:
        raise NotReadable("no passes")
    steps = [Step(spans[step][1] - spans[step][0], {replica: micro_batches_of(found, stages) for replica, found in sorted(passes[step].items())})
             for step in sorted(passes)[:most_steps]]
    return Trace(steps, stages, quickest_transfer(transfers))
