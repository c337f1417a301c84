"""A plan as Python has it. Nothing is left out: `Plan.message` is the planner's own message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.v1 import job_pb2, plan_pb2


@dataclass(frozen=True)
class Span:
    """The context ranks [first, first + ranks) that a row's tokens are divided over."""

    first: int = 0
    ranks: int = 1


@dataclass(frozen=True)
class MicroBatch:
    """Samples that go through a pipeline together.

    samples          places in the lengths that were planned, in the order in which they lie in memory
    layout           "PADDED", "PACKED" or "CONCATENATED"
    row_samples      CONCATENATED: cumulative numbers of samples of the rows, from 0; else empty
    target_length    tokens of a row where rows are of one length (PADDED, CONCATENATED), else 0
    source_length    the same of a T5's encoder
    spans            one for each row (PACKED: for each sample)
    computed_tokens  padding included
    loss_tokens      positions that the loss counts
    part_rows        the parts in which passes go through the micro-batch while rows of experts travel: cumulative numbers of
                     rows (PACKED: of samples), from 0; empty: one part. Results do not depend on it
    whole_backward   forward passes alone go in these parts
    part_chunks      of each of part_rows, the chunk of that row with which the part begins, 0 at the begin of a row; empty: all
                     are 0. A row over k ranks has 2k chunks, of which the j-th rank of its span has j and 2k - 1 - j
    """

    samples: tuple[int, ...]
    layout: str
    row_samples: tuple[int, ...]
    target_length: int
    source_length: int
    spans: tuple[Span, ...]
    computed_tokens: int
    real_tokens: int
    loss_tokens: int
    part_rows: tuple[int, ...] = ()
    whole_backward: bool = False
    part_chunks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """One batch's plan.

    replicas           of each replica its micro-batches, in the order in which they enter its pipeline
    lengths            (input, target) tokens of each sample, as planned
    topology           [replica][stage]: the ranks of the stage group, context rank by context rank, of each its tensor ranks
    predicted_seconds  of the iteration
    gap                predicted time over the lower bound, less 1: at most so much a better plan could save, relative to
                       the bound; nan without a bound
    schedule           the family of the schedule, as "READY_FIRST"
    loss_tokens        of the whole batch: the sum of every micro-batch's loss is divided by it
    message            all of it, with every rank's program
    """

    replicas: tuple[tuple[MicroBatch, ...], ...]
    lengths: tuple[tuple[int, int], ...]
    topology: tuple[tuple[tuple[int, ...], ...], ...]
    predicted_seconds: float
    gap: float
    schedule: str
    loss_tokens: int
    message: plan_pb2.Plan


def micro_batch_of(message: plan_pb2.MicroBatch) -> MicroBatch:
    layout = job_pb2.Layout.Name(message.layout).removeprefix("LAYOUT_")
    rows = {"CONCATENATED": len(message.row_samples) - 1}.get(layout, len(message.samples))
    spans = tuple(Span(first, ranks) for first, ranks in zip(message.span_first, message.span_ranks, strict=True))
    return MicroBatch(
        samples=tuple(message.samples),
        layout=layout,
        row_samples=tuple(message.row_samples),
        target_length=message.target_length,
        source_length=message.source_length,
        spans=spans or (Span(),) * rows,
        computed_tokens=message.computed_tokens,
        real_tokens=message.real_tokens,
        loss_tokens=message.loss_tokens,
        part_rows=tuple(message.part_rows),
        whole_backward=message.whole_backward,
        part_chunks=tuple(message.part_chunks),
    )


def plan_of(message: plan_pb2.Plan, samples: Sequence[plan_pb2.Sample]) -> Plan:
    """A plan from its message and the samples of the batch it was made for."""
    bound = message.lower_bound_ns
    makespan = message.predicted.makespan_ns
    return Plan(
        replicas=tuple(tuple(map(micro_batch_of, replica.micro_batches)) for replica in message.replicas),
        lengths=tuple((sample.input_tokens, sample.target_tokens) for sample in samples),
        topology=tuple(tuple(tuple(stage.ranks) for stage in replica.stages) for replica in message.topology.replicas),
        predicted_seconds=makespan / 1e9,
        gap=makespan / bound - 1 if bound > 0 else float("nan"),
        schedule=job_pb2.Schedule.Name(message.schedule).removeprefix("SCHEDULE_"),
        loss_tokens=message.loss_tokens,
        message=message,
    )
