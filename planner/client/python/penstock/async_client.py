"""The client of asyncio. Of one event loop: make it where it is used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import grpc
from penstock.channel import Security, options_of, target_of
from penstock.errors import Unavailable, error_of
from penstock.plan import Plan, plan_of
from penstock.request import FIRST_PAUSE, LONGEST_PAUSE, PLAN_METHOD, Length, Model, Options, Profile, request_of
from penstock.v1 import planner_service_pb2


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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

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
        request = request_of(
            lengths, profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, options=options, iteration=iteration
        )
        response = await self._call(request, self._timeout if timeout is None else timeout)
        return plan_of(response.plan, request.batch.samples)

    async def _call(
        self, request: planner_service_pb2.PlanBatchRequest, timeout: float
    ) -> planner_service_pb2.PlanBatchResponse:
        end = time.monotonic() + timeout
        pause = FIRST_PAUSE
        while True:
            try:
                response: planner_service_pb2.PlanBatchResponse = await self._plan_batch(
                    request, timeout=max(0.0, end - time.monotonic())
                )
                return response
            except grpc.aio.AioRpcError as error:
                failure = error_of(error)
            if not isinstance(failure, Unavailable) or time.monotonic() + pause >= end:
                raise failure
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
