"""The client of asyncio. Of one event loop: make it where it is used."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
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
    request_of,
)
from penstock.v1 import planner_service_pb2

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class AsyncClient:
    """Client, for asyncio; arguments and exceptions are Client's. Names in a list of addresses are looked up at once, which blocks."""

    def __init__(self, addresses: str, *, security: Security | None = None, timeout: float = 60.0) -> None:
        security = security or Security()
        credentials = security.credentials()
        target, options = target_of(addresses), options_of(addresses, False, security)
        self._timeout = timeout
        self._channel = (
            grpc.aio.secure_channel(target, credentials, options)
            if credentials
            else grpc.aio.insecure_channel(target, options)
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close(None)

    async def plan(
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
        """See Client.plan. Many may be under way at once; one that is cancelled stops the planning."""
        job = job_of(profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, options=options)
        request = request_of(lengths, job, iteration=iteration)
        response = await self._call(self._plan_batch, request, timeout)
        return plan_of(response.plan, request.batch.samples)

    async def revise_costs(
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
        """See Client.revise_costs."""
        job = job_of(profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, options=options)
        return revision_of(await self._call(self._revise_costs, revise_request_of(passes, job), timeout))

    async def _call(
        self, method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response], request: _Request, timeout: float | None
    ) -> _Response:
        end = time.monotonic() + (self._timeout if timeout is None else timeout)
        pause = FIRST_PAUSE
        while True:
            try:
                return await method(request, timeout=max(0.0, end - time.monotonic()))
            except grpc.aio.AioRpcError as error:
                failure = error_of(error)
            if not isinstance(failure, Unavailable) or time.monotonic() + pause >= end:
                raise failure
            await asyncio.sleep(pause)
            # Connections are made while somebody waits for them.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._channel.channel_ready(), max(0.0, min(end - time.monotonic(), LONGEST_PAUSE)))
            pause = min(2 * pause, LONGEST_PAUSE)
