"""Micro-batches over data and context ranks together, as Megatron's schedulers lay them out: a sample has one rank, or a span of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.adapters.groups import GroupPlanner, checked, equal_counts

# [micro-batch][rank][sample id]
Schedule = list[list[list[int]]]


def ranks_needed(length: int, most: int) -> int:
    """The smallest power of two of ranks on which a sample has at most `most` tokens each."""
    return 1 << (-(-length // most) - 1).bit_length()


def spans_filled(needed: Sequence[int], ranks: int) -> list[int]:
    """Spans (ranks, a power of two each, descending) of one micro-batch, doubled smallest first until they fill all ranks."""
    spans = sorted(needed, reverse=True)
    while sum(spans) < ranks:
        spans[-1] *= 2
        spans.sort(reverse=True)
    return spans


def schedule_of(
    samples: Sequence[tuple[int, int]],
    ranks: int,
    needed: Callable[[int], int],
    planner: GroupPlanner,
    *,
    multiple_of: int = 1,
) -> Schedule:
    """Every (id, tokens) of `samples` once; no rank of a micro-batch is empty, and spans are aligned to their size.

    Samples that fit one rank are planned, a replica being a rank; longer ones are put on as many ranks as `needed` says of their tokens,
    widened until no rank of their micro-batch is empty. The number of micro-batches is a multiple of `multiple_of`.

    Raises ValueError where samples are fewer than ranks (unless all need several), or one needs more ranks than there are.
    """
    long = [(sample, length) for sample, length in samples if needed(length) > 1]
    short = [(sample, length) for sample, length in samples if needed(length) == 1]
    chosen = _spanned(long, ranks, needed)
    if short:
        chosen += _planned(short, ranks, planner, len(chosen), multiple_of)
    if len(chosen) % multiple_of != 0:
        raise ValueError(f"samples: {len(chosen)} micro-batches are no multiple of {multiple_of}, and none can be divided")
    return chosen


def _planned(
    samples: Sequence[tuple[int, int]], ranks: int, planner: GroupPlanner, before: int, multiple_of: int
) -> Schedule:
    """`before`: micro-batches that are there."""
    lengths = [length for _, length in samples]
    planned = checked(planner(lengths, ranks), len(lengths), ranks)
    count = max(map(len, planned))
    wanted = -(-(before + count) // multiple_of) * multiple_of - before
    groups = equal_counts(planned, lengths, at_least=wanted)
    return [[[samples[place][0] for place in rank[step]] for rank in groups] for step in range(len(groups[0]))]


def _spanned(samples: Sequence[tuple[int, int]], ranks: int, needed: Callable[[int], int]) -> Schedule:
    """Longest first, each to the first micro-batch that has as many ranks left as it needs."""
    steps: list[list[tuple[int, int]]] = []
    for sample, length in sorted(samples, key=lambda pair: (-pair[1], pair[0])):
        span = needed(length)
        if span > ranks:
            raise ValueError(f"sample {sample}: its {length} tokens need {span} ranks, there are {ranks}")
        step = next((s for s in steps if sum(taken for _, taken in s) + span <= ranks), None)
        if step is None:
            step = []
            steps.append(step)
        step.append((sample, span))
    return [_on_ranks(step, ranks) for step in steps]


def _on_ranks(step: Sequence[tuple[int, int]], ranks: int) -> list[list[int]]:
    spans = spans_filled([span for _, span in step], ranks)
    return [[sample] for (sample, _), span in zip(step, spans, strict=True) for _ in range(span)]
