"""The methods of planner_service.proto that the clients call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message
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


PLAN_BATCH = Method("PlanBatch", pb.PlanBatchRequest.SerializeToString, pb.PlanBatchResponse.FromString)
REVISE_COSTS = Method("ReviseCosts", pb.ReviseCostsRequest.SerializeToString, pb.ReviseCostsResponse.FromString)
REGISTER_JOB = Method("RegisterJob", pb.RegisterJobRequest.SerializeToString, pb.RegisterJobResponse.FromString)
SUBMIT_BATCHES = Method("SubmitBatches", pb.SubmitBatchesRequest.SerializeToString, pb.SubmitBatchesResponse.FromString)
STREAM_PROGRAMS = Method("StreamPrograms", pb.StreamProgramsRequest.SerializeToString, pb.StreamProgramsResponse.FromString)
REPORT_ITERATION = Method(
    "ReportIteration", pb.ReportIterationRequest.SerializeToString, pb.ReportIterationResponse.FromString
)
GET_JOB = Method("GetJob", pb.GetJobRequest.SerializeToString, pb.GetJobResponse.FromString)
GET_ITERATION = Method("GetIteration", pb.GetIterationRequest.SerializeToString, pb.GetIterationResponse.FromString)
DRAIN_JOB = Method("DrainJob", pb.DrainJobRequest.SerializeToString, pb.DrainJobResponse.FromString)
DELETE_JOB = Method("DeleteJob", pb.DeleteJobRequest.SerializeToString, pb.DeleteJobResponse.FromString)
