"""Groups of samples as plans have them, and what frameworks ask of groups that plans do not promise.

A plan decides which samples go together: for each replica its micro-batches, for each micro-batch places in the list of
lengths that was planned. Replicas of a plan may have different numbers of micro-batches; most frameworks make their ranks
take steps together, so their adapters even them out here. What is changed is changed by splitting the heaviest micro-batch or
joining the two lightest, by `Work`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

MicroBatches = list[list[int]]
# [replica][micro-batch][place in the lengths]
Groups = list[MicroBatches]
# Relative time of one sample of so many tokens.
Work = Callable[[int], float]


class GroupPlanner(Protocol):
    """Asks for a plan: groups of samples of these lengths (tokens) for so many replicas."""

    def __call__(self, lengths: Sequence[int], replicas: int) -> Groups: ...


def seven_billion(length: int) -> float:
    """Work of a sample in a dense model of hidden size 4096, without a constant: 6 hidden tokens + tokens squared."""
    return 24576.0 * length + float(length) * length


def groups_of(plan: Any) -> Groups:
    """The groups of a plan, the protobuf message penstock.v1.Plan."""
    return [[list(micro_batch.samples) for micro_batch in replica.micro_batches] for replica in plan.replicas]


def checked(groups: Groups, samples: int, replicas: int) -> Groups:
    """`groups`, if each of `samples` places is in it once and it has `replicas` replicas. Raises ValueError otherwise."""
    if len(groups) != replicas:
        raise ValueError(f"groups: {len(groups)} replicas, {replicas} were asked for")
    seen = [False] * samples
    for place in (place for replica in groups for micro_batch in replica for place in micro_batch):
        if not 0 <= place < samples:
            raise ValueError(f"groups: place {place} is not below the number of samples, {samples}")
        if seen[place]:
            raise ValueError(f"groups: sample {place} is there twice")
        seen[place] = True
    if not all(seen):
        raise ValueError(f"groups: sample {seen.index(False)} is missing")
    return groups


def work_of(micro_batch: Sequence[int], lengths: Sequence[int], work: Work) -> float:
    return sum(work(lengths[place]) for place in micro_batch)


def halves(micro_batch: Sequence[int], lengths: Sequence[int], work: Work) -> MicroBatches:
    """Two micro-batches of the samples of one that has at least two: longest first, each to the lighter half."""
    parts: MicroBatches = [[], []]
    loads = [0.0, 0.0]
    for place in sorted(micro_batch, key=lambda place: (-lengths[place], place)):
        lighter = 0 if loads[0] <= loads[1] else 1
        parts[lighter].append(place)
        loads[lighter] += work(lengths[place])
    return parts


def padded_work_of(micro_batch: Sequence[int], lengths: Sequence[int], work: Work) -> float:
    """The same where rows are padded to the longest."""
    return len(micro_batch) * work(max(lengths[place] for place in micro_batch))


def joined_like(micro_batches: MicroBatches, lengths: Sequence[int], count: int, work: Work) -> MicroBatches:
    """At most `count` micro-batches for rows that are padded: joined are two whose longest samples are alike, those first that add
    least padding."""
    result = sorted(micro_batches, key=lambda micro_batch: max(lengths[place] for place in micro_batch))
    while len(result) > count:
        works = [padded_work_of(micro_batch, lengths, work) for micro_batch in result]
        added = [
            padded_work_of(result[at] + result[at + 1], lengths, work) - works[at] - works[at + 1] for at in range(len(result) - 1)
        ]
        at = added.index(min(added))
        result[at : at + 2] = [result[at] + result[at + 1]]
    return result


def with_count(
    micro_batches: MicroBatches, lengths: Sequence[int], count: int, work: Work = seven_billion, *, padded: bool = False
) -> MicroBatches:
    """Exactly `count` micro-batches, none empty, heaviest first: ranks that wait for each other after every micro-batch then have
    alike ones at the same time. `padded`: the framework pads their rows. Raises ValueError where there are fewer samples."""
    result = [list(micro_batch) for micro_batch in micro_batches if micro_batch]
    samples = sum(map(len, result))
    if not 1 <= count <= samples:
        raise ValueError(f"count: {count} micro-batches cannot be made of {samples} samples")
    of = padded_work_of if padded else work_of
    if padded:
        result = joined_like(result, lengths, count, work)
    while len(result) > count:
        result.sort(key=lambda micro_batch: of(micro_batch, lengths, work), reverse=True)
        result[-2:] = [result[-2] + result[-1]]
    while len(result) < count:
        divisible = [place for place, micro_batch in enumerate(result) if len(micro_batch) > 1]
        heaviest = max(divisible, key=lambda place: of(result[place], lengths, work))
        result[heaviest : heaviest + 1] = halves(result[heaviest], lengths, work)
    return sorted(result, key=lambda micro_batch: of(micro_batch, lengths, work), reverse=True)


def with_samples(groups: Groups, lengths: Sequence[int], wanted: int) -> Groups:
    """Groups in which each replica has at least `wanted` samples: one with too few takes the shortest of the one with most.

    Raises ValueError where there are too few samples.
    """
    result = [[list(micro_batch) for micro_batch in replica if micro_batch] for replica in groups]
    samples = sum(len(micro_batch) for replica in result for micro_batch in replica)
    if samples < wanted * len(result):
        raise ValueError(f"lengths: {samples} samples are too few for {wanted} micro-batches in each of {len(result)} replicas")
    for replica in result:
        while sum(map(len, replica)) < wanted:
            giver = max(result, key=lambda other: sum(map(len, other)))
            taken = min((place for micro_batch in giver for place in micro_batch), key=lambda place: (lengths[place], place))
            source = next(micro_batch for micro_batch in giver if taken in micro_batch)
            source.remove(taken)
            if not source:
                giver.remove(source)
            replica.append([taken])
    return result


def equal_counts(
    groups: Groups, lengths: Sequence[int], multiple_of: int = 1, at_least: int = 1, work: Work = seven_billion
) -> Groups:
    """Groups with the same number of micro-batches in every replica: the largest there is, raised to `at_least` and to a
    multiple of `multiple_of`. No micro-batch gets larger by it, but for samples that move to a replica that has too few.

    Raises ValueError where there are too few samples.
    """
    wanted = max(at_least, max(map(len, groups)))
    wanted = -(-wanted // multiple_of) * multiple_of
    return [with_count(replica, lengths, wanted, work) for replica in with_samples(groups, lengths, wanted)]


def within_cap(micro_batches: MicroBatches, lengths: Sequence[int], cap: int) -> MicroBatches:
    """Micro-batches of at most `cap` tokens each: those above are filled anew, longest first into the first that has room.

    Raises ValueError where a sample is longer than `cap`.
    """
    result: MicroBatches = []
    for micro_batch in micro_batches:
        parts: MicroBatches = []
        rooms: list[int] = []
        if sum(lengths[place] for place in micro_batch) <= cap:
            result.append(list(micro_batch))
            continue
        for place in sorted(micro_batch, key=lambda place: (-lengths[place], place)):
            if lengths[place] > cap:
                raise ValueError(f"lengths[{place}]: {lengths[place]} tokens are more than the limit of {cap}")
            part = next((part for part, room in enumerate(rooms) if room >= lengths[place]), None)
            if part is None:
                parts.append([])
                rooms.append(cap)
                part = len(parts) - 1
            parts[part].append(place)
            rooms[part] -= lengths[place]
        result.extend(parts)
    return result
