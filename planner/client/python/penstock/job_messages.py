"""What Job and AsyncJob have in common: their requests, and what a program is in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import grpc
from penstock.errors import FailedPrecondition
from penstock.plan import MicroBatch, micro_batch_of
from penstock.request import Length, sample_of
from penstock.v1 import job_pb2, plan_pb2, planner_service_pb2

# Lengths of samples, whose ids are then their places, or lengths by id: {index in the dataset: length}.
Samples = Sequence[Length] | Mapping[int, Length]
# What the planner takes where a job names no window (JobSpec.look_ahead_window).
DEFAULT_WINDOW = 16


@dataclass(frozen=True)
class ValidatedBatch:
    """A batch, and samples that are not learnt: when the iteration has trained, they are run forward alone, with the parameters that
    it leaves. Ids are those of one list of all data, so `validation` is best given by id."""

    samples: Samples
    validation: Samples


Batch = Samples | ValidatedBatch
# A mesh by its degrees ({"pp": 2, "dp": 4}; those that are not named are 1), several side by side, or the message.
Strategy = Mapping[str, int] | Sequence[Mapping[str, int]] | job_pb2.Strategy


@dataclass(frozen=True)
class RankProgram:
    """What one rank does in one iteration.

    micro_batches  of the rank's replica, in the order in which they enter its pipeline; MicroBatch.samples are places in
                   `sample_ids` and `lengths`
    sample_ids     of the replica's samples: those of the batch that was submitted
    lengths        (input, target) tokens of each
    loss_tokens    of the whole batch over all replicas: the sum of every micro-batch's loss is divided by it
    loss_weight    where samples of the batch weigh something else than their positions: the sum is divided by it instead, and each
                   position counts by the weight that the dataset gives its token; else 0
    instructions   in an order in which they may be run one by one (execution.md)
    validation     what the rank runs when it has ended these; None: the batch has none
    message        all of it
    """

    iteration: int
    rank: int
    micro_batches: tuple[MicroBatch, ...]
    sample_ids: tuple[int, ...]
    lengths: tuple[tuple[int, int], ...]
    loss_tokens: int
    loss_weight: float
    instructions: tuple[plan_pb2.Instruction, ...]
    message: planner_service_pb2.StreamProgramsResponse
    validation: RankProgram | None = None


@dataclass(frozen=True)
class MeasuredInstruction:
    """What one instruction took: `id` of its program, seconds from the rank's start of the iteration, seconds.

    exchange  of a pass of a stage group: how many of the seconds the rank waited for what it exchanges with the group
    """

    id: int
    start: float
    seconds: float
    exchange: float | None = None


@dataclass(frozen=True)
class MeasuredValidation:
    """What a rank found of a validation. `loss`: as that of the iteration, divided by what RankProgram.validation divides by."""

    loss: float
    seconds: float = 0.0


def job_request_of(job_id: str) -> planner_service_pb2.GetJobRequest:
    """Of the job and its status, without what its iterations were: from one on that no job has."""
    return planner_service_pb2.GetJobRequest(job_id=job_id, from_iteration=2**48)


def program_of(message: planner_service_pb2.StreamProgramsResponse) -> RankProgram:
    return RankProgram(
        iteration=message.iteration,
        rank=message.program.rank,
        micro_batches=tuple(map(micro_batch_of, message.micro_batches)),
        sample_ids=tuple(sample.sample_id for sample in message.samples),
        lengths=tuple((sample.input_tokens, sample.target_tokens) for sample in message.samples),
        loss_tokens=message.loss_tokens,
        loss_weight=message.loss_weight,
        instructions=tuple(message.program.instructions),
        message=message,
        validation=program_of(message.validation) if message.HasField("validation") else None,
    )


def batch_of(batch: Batch, iteration: int) -> plan_pb2.Batch:
    """Raises ValueError for lengths that are none, naming the place."""
    if isinstance(batch, ValidatedBatch):
        made = batch_of(batch.samples, iteration)
        try:
            made.validation.CopyFrom(batch_of(batch.validation, iteration))
        except ValueError as error:
            raise ValueError(f"validation: {error}") from error
        return made
    samples: Iterable[tuple[int, Length]] = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
    return plan_pb2.Batch(iteration=iteration, samples=[sample_of(number, length) for number, length in samples])


def submission_of(job_id: str, batches: Iterable[plan_pb2.Batch]) -> planner_service_pb2.SubmitBatchesRequest:
    return planner_service_pb2.SubmitBatchesRequest(job_id=job_id, batches=batches)


def reader_of(
    job_id: str, rank: int, iteration: int, compact_version: int = 0
) -> planner_service_pb2.StreamProgramsRequest:
    return planner_service_pb2.StreamProgramsRequest(
        job_id=job_id, rank=rank, from_iteration=iteration, compact_version=compact_version
    )


def reports_of(
    spec: job_pb2.JobSpec,
    iteration: int,
    rank: int | None,
    *,
    seconds: float,
    waited: float,
    loss: float,
    gradient_norm: float,
    part_norms: Mapping[str, float],
    expert_rows: Iterable[int],
    fullest_expert_rows: Iterable[int],
    measured: Iterable[MeasuredInstruction],
    validation: MeasuredValidation | None,
) -> list[planner_service_pb2.ReportIterationRequest]:
    """The report of `rank`, or of every rank. Raises ValueError for a time or a part that is none, naming it."""
    report = planner_service_pb2.ReportIterationRequest(
        job_id=spec.job_id,
        iteration=iteration,
        duration_ns=_nanoseconds("seconds", seconds),
        waited_for_program_ns=_nanoseconds("waited", waited),
        loss=loss,
        gradient_norm=gradient_norm,
        expert_rows=expert_rows,
        fullest_expert_rows=fullest_expert_rows,
    )
    by_part = {_model_part(name): norm for name, norm in part_norms.items()}
    for part in sorted(by_part, key=planner_service_pb2.ModelPart.Value):
        report.part_norms.add(part=part, norm=by_part[part])
    if validation is not None:
        report.validation.loss = validation.loss
        report.validation.duration_ns = _nanoseconds("validation.seconds", validation.seconds)
    for place, one in enumerate(measured):
        start, duration = (
            _nanoseconds(f"measured[{place}].{field}", value)
            for field, value in (("start", one.start), ("seconds", one.seconds))
        )
        exchange = None if one.exchange is None else _nanoseconds(f"measured[{place}].exchange", one.exchange)
        report.instructions.add(id=one.id, start_ns=start, duration_ns=duration, exchange_ns=exchange)
    if rank is None:
        for of_one_rank in ("instructions", "part_norms", "expert_rows", "fullest_expert_rows"):
            if getattr(report, of_one_rank):
                raise ValueError(f"rank: is missing; {of_one_rank} are those of one rank")
    made = []
    for one_rank in range(ranks_of(spec)) if rank is None else (rank,):
        report.rank = one_rank
        made.append(planner_service_pb2.ReportIterationRequest.FromString(report.SerializeToString()))
    return made


def _model_part(name: str) -> str:
    known = planner_service_pb2.ModelPart.keys()[1:]
    full_name = f"MODEL_PART_{name.upper()}"
    if full_name not in known:
        names = ", ".join(part.removeprefix("MODEL_PART_").lower() for part in known)
        raise ValueError(f"part_norms: '{name}' is no part of a model; those are {names}")
    return full_name


def _nanoseconds(field: str, seconds: float) -> int:
    if not 0 <= seconds < 2**33:
        raise ValueError(f"{field}: {seconds} is no duration")
    return round(seconds * 1e9)


def ranks_of(spec: job_pb2.JobSpec) -> int:
    mesh = spec.mesh
    return mesh.pipeline * mesh.data * max(1, mesh.tensor) * max(1, mesh.context)


def ended_before(job_id: str, iteration: int) -> FailedPrecondition:
    return FailedPrecondition(grpc.StatusCode.FAILED_PRECONDITION, f"job '{job_id}' ended before iteration {iteration}")


class Submissions:
    """Batches on their way to a planner: `pending` is the next one, None after the last; `next_iteration` is its number."""

    def __init__(self, batches: Iterable[Batch], first_iteration: int) -> None:
        self._batches: Iterator[Batch] = iter(batches)
        self.next_iteration = first_iteration
        self.pending = self._take()

    def taken(self) -> None:
        """The planner has the pending batch."""
        self.next_iteration += 1
        self.pending = self._take()

    def _take(self) -> plan_pb2.Batch | None:
        for batch in self._batches:
            return batch_of(batch, self.next_iteration)
        return None


_DEGREES = {"pp": "pipeline", "dp": "data", "tp": "tensor", "cp": "context", "ep": "expert"}


def _mesh_of(place: int, degrees: Mapping[str, int]) -> job_pb2.Mesh:
    """Raises ValueError, naming the place, for a degree that there is not."""
    unknown = [name for name in degrees if name not in _DEGREES]
    if unknown:
        raise ValueError(f"strategies[{place}]: {unknown[0]!r} is none of {', '.join(_DEGREES)}")
    mesh = job_pb2.Mesh(pipeline=1, data=1)
    for name, degree in degrees.items():
        if degree != 1:
            setattr(mesh, _DEGREES[name], degree)
    return mesh


def _strategy_of(place: int, strategy: Strategy) -> job_pb2.Strategy:
    if isinstance(strategy, job_pb2.Strategy):
        return strategy
    meshes = [strategy] if isinstance(strategy, Mapping) else strategy
    return job_pb2.Strategy(meshes=[job_pb2.StrategyMesh(mesh=_mesh_of(place, mesh)) for mesh in meshes])


def strategies_request_of(
    job_id: str, strategies: Iterable[Strategy], typical: Iterable[Length], typical_batch_size: int
) -> planner_service_pb2.ChangeStrategiesRequest:
    """Raises ValueError, naming the place, for what no message can hold."""
    samples = [sample_of(place, length) for place, length in enumerate(typical)]
    return planner_service_pb2.ChangeStrategiesRequest(
        job_id=job_id,
        strategies=[_strategy_of(place, strategy) for place, strategy in enumerate(strategies)],
        typical_samples=[
            job_pb2.SampleLengths(input_tokens=sample.input_tokens, target_tokens=sample.target_tokens) for sample in samples
        ],
        typical_batch_size=typical_batch_size,
    )
