"""What Client and AsyncClient ask: jobs and the request of one plan, from what a user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from penstock.v1 import cost_profile_pb2, job_pb2, plan_pb2, planner_service_pb2

# Tokens of a sample: those that are learnt, or (input, target).
Length = int | tuple[int, int]
Model = job_pb2.ModelSpec | Mapping[str, Any]
Profile = job_pb2.ProfileFile | cost_profile_pb2.CostProfile | str | Path
Options = job_pb2.PlanningOptions | Mapping[str, Any]


def sample_of(place: int, length: Length) -> plan_pb2.Sample:
    """`place` becomes the sample's id. Raises ValueError, naming the place, for lengths that no message can hold."""
    inputs, targets = length if isinstance(length, tuple) else (0, int(length))
    if not (0 <= inputs < 2**32 and 0 <= targets < 2**32):
        raise ValueError(f"lengths[{place}]: {length} is not from 0 to 2^32 - 1")
    return plan_pb2.Sample(sample_id=place, input_tokens=inputs, target_tokens=targets)


def profile_of(profile: Profile) -> job_pb2.ProfileFile:
    """A path is that of a profile file. Raises OSError, or ValueError for a file that is none; names the file."""
    if isinstance(profile, job_pb2.ProfileFile):
        return profile
    if isinstance(profile, cost_profile_pb2.CostProfile):
        return job_pb2.ProfileFile(profile=profile)
    try:
        return json_format.Parse(Path(profile).read_text(encoding="utf-8"), job_pb2.ProfileFile())
    except json_format.ParseError as error:
        raise ValueError(f"profile: {profile}: {error}") from error


def model_of(model: Model | None, file: job_pb2.ProfileFile) -> job_pb2.ModelSpec:
    """The model given, or the profile file's. Raises ValueError where there is neither."""
    if model is None:
        if not file.HasField("model"):
            raise ValueError("model: is missing, and the profile has none")
        return file.model
    if isinstance(model, job_pb2.ModelSpec):
        return model
    return _parsed("model", model, job_pb2.ModelSpec())


_Parsed = TypeVar("_Parsed", bound=Message)


def _parsed(field: str, values: Mapping[str, Any], message: _Parsed) -> _Parsed:
    try:
        return json_format.ParseDict(dict(values), message)
    except json_format.ParseError as error:
        raise ValueError(f"{field}: {error}") from error


def options_of_plan(options: Options | None) -> job_pb2.PlanningOptions:
    """A message of its own; dynamic where no policy is named. Raises ValueError for what is no option."""
    planning = job_pb2.PlanningOptions()
    if isinstance(options, job_pb2.PlanningOptions):
        planning.CopyFrom(options)
    else:
        planning = _parsed("options", options or {}, planning)
    if not planning.policy:
        planning.policy = job_pb2.POLICY_DYNAMIC
    return planning


def job_of(
    *,
    profile: Profile,
    model: Model | None,
    pp: int,
    dp: int,
    tp: int,
    cp: int,
    ep: int = 1,
    options: Options | None,
) -> job_pb2.JobSpec:
    """Raises ValueError and OSError as its parts do."""
    for field, degree in (("pp", pp), ("dp", dp), ("tp", tp), ("cp", cp), ("ep", ep)):
        if not 1 <= degree < 2**32:
            raise ValueError(f"{field}: {degree} is not a number of ranks")
    file = profile_of(profile)
    return job_pb2.JobSpec(
        job_id="plans",
        model=model_of(model, file),
        mesh=job_pb2.Mesh(pipeline=pp, data=dp, tensor=tp, context=cp, expert=ep if ep > 1 else 0),
        planning=options_of_plan(options),
        profile=file.profile,
    )


def request_of(lengths: Sequence[Length], job: job_pb2.JobSpec, *, iteration: int) -> planner_service_pb2.PlanBatchRequest:
    """Raises ValueError for lengths that are none, naming the place."""
    samples = [sample_of(place, length) for place, length in enumerate(lengths)]
    return planner_service_pb2.PlanBatchRequest(job=job, batch=plan_pb2.Batch(iteration=iteration, samples=samples))


def registered_job_of(
    job: job_pb2.JobSpec, *, job_id: str, look_ahead: int, iterations: int, first_iteration: int, fixed_costs: bool
) -> job_pb2.JobSpec:
    """`job` with what a registration says beyond a plan. Raises ValueError for numbers that no message can hold."""
    if not 1 <= look_ahead < 2**32:
        raise ValueError(f"look_ahead: {look_ahead} is not a number of iterations from 1")
    for field, value in (("iterations", iterations), ("first_iteration", first_iteration)):
        if not 0 <= value < 2**48:
            raise ValueError(f"{field}: {value} is not from 0 to 2^48 - 1")
    job.job_id = job_id
    job.look_ahead_window = look_ahead
    job.training.iterations = iterations
    job.first_iteration = first_iteration
    job.fixed_costs = fixed_costs
    return job
