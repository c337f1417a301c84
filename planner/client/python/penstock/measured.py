"""What a trainer measured, for ReviseCosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from google.protobuf import json_format
from penstock.request import Length, sample_of
from penstock.v1 import job_pb2, plan_pb2, planner_service_pb2

PassKind = Literal["forward", "backward", "backward_input", "backward_weight"]

_OPS = {
    "forward": plan_pb2.OP_FORWARD,
    "backward": plan_pb2.OP_BACKWARD,
    "backward_input": plan_pb2.OP_BACKWARD_INPUT,
    "backward_weight": plan_pb2.OP_BACKWARD_WEIGHT,
}


@dataclass(frozen=True)
class MeasuredPass:
    """What one pass of one micro-batch took on one rank, without the time in which it waited for others.

    kind     of a backward pass that is not split "backward"
    stage    from 0; layers are divided evenly unless options name layers_per_stage
    lengths  of the micro-batch's samples, as in Client.plan; of a stage group those of the context rank
    seconds  on a GPU by events
    packed   False: rows are padded to the longest
    selective_layers, full_layers  how many of the stage's layers recomputed attention alone, or everything
    """

    kind: PassKind
    stage: int
    lengths: Sequence[Length]
    seconds: float
    packed: bool = True
    selective_layers: int = 0
    full_layers: int = 0


@dataclass(frozen=True)
class Revision:
    """`profile`: with its model, for the next plans. Errors: mean over the passes of |predicted - measured| / measured, with the
    profile that was given and with this one."""

    profile: job_pb2.ProfileFile
    error_before: float
    error_after: float

    def save(self, path: str | Path) -> None:
        """Writes a profile file, as penstock-worker profile does: beside a checkpoint, so that a run that goes on has it."""
        Path(path).write_text(json_format.MessageToJson(self.profile), encoding="utf-8")


def revise_request_of(passes: Iterable[MeasuredPass], job: job_pb2.JobSpec) -> planner_service_pb2.ReviseCostsRequest:
    """Raises ValueError for a pass that no message can hold, naming it."""
    request = planner_service_pb2.ReviseCostsRequest(job=job)
    for place, measured in enumerate(passes):
        if measured.kind not in _OPS:
            raise ValueError(f"passes[{place}].kind: {measured.kind!r} is none of {', '.join(_OPS)}")
        if not 0 <= measured.seconds < 2**33:
            raise ValueError(f"passes[{place}].seconds: {measured.seconds} is no duration")
        one = request.passes.add(
            op=_OPS[measured.kind],
            stage=measured.stage,
            layout=job_pb2.LAYOUT_PACKED if measured.packed else job_pb2.LAYOUT_PADDED,
            duration_ns=round(measured.seconds * 1e9),
        )
        for number, length in enumerate(measured.lengths):
            sample = sample_of(number, length)
            one.samples.add(input_tokens=sample.input_tokens, target_tokens=sample.target_tokens)
        if measured.selective_layers or measured.full_layers:
            one.recompute.selective_layers = measured.selective_layers
            one.recompute.full_layers = measured.full_layers
    return request


def revision_of(response: planner_service_pb2.ReviseCostsResponse, model: job_pb2.ModelSpec) -> Revision:
    file = job_pb2.ProfileFile(model=model, profile=response.profile)
    return Revision(file, response.error_before, response.error_after)
