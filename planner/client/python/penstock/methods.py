"""The methods of planner_service.proto that the clients call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message
from penstock.compact import unpack_plan, unpack_program
from penstock.v1 import planner_service_pb2 as pb

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True)
class Method(Generic[Request, Response]):
    """A method's name, and how its messages are written and read."""

    name: str
    serialize: Callable[[Request], bytes]
    parse: Callable[[bytes], Response]

    @property
    def path(self) -> str:
        return f"/penstock.v1.PlannerService/{self.name}"


def _program(data: bytes) -> pb.StreamProgramsResponse:
    return unpack_program(pb.StreamProgramsResponse.FromString(data))


def _plan(data: bytes) -> pb.PlanBatchResponse:
    return unpack_plan(pb.PlanBatchResponse.FromString(data))


def _iteration(data: bytes) -> pb.GetIterationResponse:
    return unpack_plan(pb.GetIterationResponse.FromString(data))


PLAN_BATCH = Method("PlanBatch", pb.PlanBatchRequest.SerializeToString, _plan)
REVISE_COSTS = Method("ReviseCosts", pb.ReviseCostsRequest.SerializeToString, pb.ReviseCostsResponse.FromString)
REGISTER_JOB = Method("RegisterJob", pb.RegisterJobRequest.SerializeToString, pb.RegisterJobResponse.FromString)
SUBMIT_BATCHES = Method("SubmitBatches", pb.SubmitBatchesRequest.SerializeToString, pb.SubmitBatchesResponse.FromString)
STREAM_PROGRAMS = Method("StreamPrograms", pb.StreamProgramsRequest.SerializeToString, _program)
REPORT_ITERATION = Method(
    "ReportIteration", pb.ReportIterationRequest.SerializeToString, pb.ReportIterationResponse.FromString
)
GET_JOB = Method("GetJob", pb.GetJobRequest.SerializeToString, pb.GetJobResponse.FromString)
GET_ITERATION = Method("GetIteration", pb.GetIterationRequest.SerializeToString, _iteration)
CHANGE_STRATEGIES = Method(
    "ChangeStrategies", pb.ChangeStrategiesRequest.SerializeToString, pb.ChangeStrategiesResponse.FromString
)
DRAIN_JOB = Method("DrainJob", pb.DrainJobRequest.SerializeToString, pb.DrainJobResponse.FromString)
DELETE_JOB = Method("DeleteJob", pb.DeleteJobRequest.SerializeToString, pb.DeleteJobResponse.FromString)
