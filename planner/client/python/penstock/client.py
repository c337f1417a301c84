"""The client that blocks. Of several threads each may use it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

import grpc
from penstock.channel import Security, options_of, target_of
from penstock.errors import Unavailable, error_of
from penstock.measured import MeasuredPass, Revision, revise_request_of, revision_of
from penstock.plan import Plan, plan_of
from penstock.request import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PLAN_METHOD,
    REVISE_METHOD,
    Length,
    Model,
    Options,
    Profile,
    job_of,
    profile_of,
    request_of,
)
from penstock.v1 import planner_service_pb2

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Client:
    """Asks one planner, or any of several, for plans of single batches; planners keep nothing of them.

    `addresses`: "host:port", "a:7070,b:7070", or "dns:///planners:7070" for a name that has the addresses of all. Does not
    connect yet. `timeout`: seconds from a call to its answer, repetitions included. A planner that cannot be reached is tried
    again, with growing pauses, until then (the C++ client's PlanBatch leaves that to its caller).
    """

    def __init__(self, addresses: str, *, security: Security | None = None, timeout: float = 60.0) -> None:
        security = security or Security()
        credentials = security.credentials()
        target, options = target_of(addresses), options_of(addresses, False, security)
        self._timeout = timeout
        self._channel = (
            grpc.secure_channel(target, credentials, options) if credentials else grpc.insecure_channel(target, options)
        )
        self._plan_batch = self._channel.unary_unary(
            PLAN_METHOD,
            request_serializer=planner_service_pb2.PlanBatchRequest.SerializeToString,
            response_deserializer=planner_service_pb2.PlanBatchResponse.FromString,
        )
        self._revise_costs = self._channel.unary_unary(
            REVISE_METHOD,
            request_serializer=planner_service_pb2.ReviseCostsRequest.SerializeToString,
            response_deserializer=planner_service_pb2.ReviseCostsResponse.FromString,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends calls that are under way."""
        self._channel.close()

    def plan(
        self,
        lengths: Sequence[Length],
        *,
        profile: Profile,
        model: Model | None = None,
        pp: int = 1,
        dp: int = 1,
        tp: int = 1,
        cp: int = 1,
        options: Options | None = None,
        iteration: int = 0,
        timeout: float | None = None,
    ) -> Plan:
        """The plan of one batch.

        lengths    tokens of each sample: those that are learnt, or (input, target)
        profile    path of a profile file (its JSON), or the message
        model      as the message or its JSON form; None: the profile file's
        pp, dp, tp, cp  the mesh: pipeline, data, tensor and context degree
        options    PlanningOptions, or its JSON form: {"policy": "POLICY_PACKED", "token_cap": 8192}

        Raises ValueError (naming the argument) and OSError before anything is sent, then a PenstockError:
        InvalidArgument, ResourceExhausted, DeadlineExceeded, Unavailable.
        """
        job = job_of(profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, options=options)
        request = request_of(lengths, job, iteration=iteration)
        response = self._call(self._plan_batch, request, timeout)
        return plan_of(response.plan, request.batch.samples)

    def revise_costs(
        self,
        passes: Iterable[MeasuredPass],
        *,
        profile: Profile,
        model: Model | None = None,
        pp: int = 1,
        dp: int = 1,
        tp: int = 1,
        cp: int = 1,
        options: Options | None = None,
        timeout: float | None = None,
    ) -> Revision:
        """The profile fitted to what passes took; plan with it from then on. Raises what `plan` raises."""
        job = job_of(profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, options=options)
        return revision_of(self._call(self._revise_costs, revise_request_of(passes, job), timeout))

    def plans(
        self,
        batches: Iterable[Sequence[Length]],
        *,
        profile: Profile,
        model: Model | None = None,
        pp: int = 1,
        dp: int = 1,
        tp: int = 1,
        cp: int = 1,
        options: Options | None = None,
        ahead: int = 4,
        first_iteration: int = 0,
    ) -> Iterator[Plan]:
        """The plans of batches, in their order, while up to `ahead` later ones are being planned.

        Raises what `plan` raises, at the batch that it is of.
        """
        if ahead < 1:
            raise ValueError(f"ahead: {ahead} is below 1")
        # A path is read once, and not again for every batch.
        profile = profile_of(profile)
        under_way: deque[Future[Plan]] = deque()
        pool = ThreadPoolExecutor(ahead + 1, thread_name_prefix="penstock")
        try:
            for number, lengths in enumerate(batches, first_iteration):
                under_way.append(
                    pool.submit(
                        self.plan,
                        lengths,
                        profile=profile,
                        model=model,
                        pp=pp,
                        dp=dp,
                        tp=tp,
                        cp=cp,
                        options=options,
                        iteration=number,
                    )
                )
                if len(under_way) > ahead:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _call(
        self, method: grpc.UnaryUnaryMultiCallable[_Request, _Response], request: _Request, timeout: float | None
    ) -> _Response:
        end = time.monotonic() + (self._timeout if timeout is None else timeout)
        pause = FIRST_PAUSE
        while True:
            try:
                return method(request, timeout=max(0.0, end - time.monotonic()))
            except grpc.RpcError as error:
                failure = error_of(error)
            if not isinstance(failure, Unavailable) or time.monotonic() + pause >= end:
                raise failure
            time.sleep(pause)
            self._await_connection(end - time.monotonic())
            pause = min(2 * pause, LONGEST_PAUSE)

    def _await_connection(self, most: float) -> None:
        """Connections are made while somebody waits for them, and not between calls that fail at once."""
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout=max(0.0, min(most, LONGEST_PAUSE)))
        except grpc.FutureTimeoutError:
            ready.cancel()
