"""The client of asyncio. Of one event loop: make it where it is used."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Self

from penstock import compact
from penstock.async_connection import AsyncConnection
from penstock.async_job import AsyncJob
from penstock.channel import Security, names_several
from penstock.errors import PenstockError
from penstock.job_messages import job_request_of
from penstock.measured import MeasuredPass, Revision, revise_request_of, revision_of
from penstock.methods import GET_JOB, PLAN_BATCH, REGISTER_JOB, REVISE_COSTS
from penstock.plan import Plan, plan_of
from penstock.request import Length, Model, Options, Profile, job_of, profile_of, registered_job_of, request_of
from penstock.v1 import planner_service_pb2


class AsyncClient:
    """Client, for asyncio; arguments and exceptions are Client's. Names in a list of addresses are looked up at once, which blocks."""

    def __init__(self, addresses: str, *, security: Security | None = None, timeout: float = 60.0) -> None:
        security = security or Security()
        self._any = AsyncConnection(addresses, leader=False, security=security, timeout=timeout)
        self._leader = (
            AsyncConnection(addresses, leader=True, security=security, timeout=timeout)
            if names_several(addresses)
            else self._any
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._any.close()
        await self._leader.close()

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
        ep: int = 1,
        options: Options | None = None,
        iteration: int = 0,
        timeout: float | None = None,
    ) -> Plan:
        """See Client.plan. Many may be under way at once; one that is cancelled stops the planning."""
        job = job_of(profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, ep=ep, options=options)
        request = request_of(lengths, job, iteration=iteration)
        try:
            response = await self._any.call(PLAN_BATCH, request, timeout)
        except PenstockError as failure:
            if not compact.is_wanted(failure):
                raise
            request.compact_version = compact.VERSION
            response = await self._any.call(PLAN_BATCH, request, timeout)
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
        ep: int = 1,
        options: Options | None = None,
        timeout: float | None = None,
    ) -> Revision:
        """See Client.revise_costs."""
        job = job_of(profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, ep=ep, options=options)
        return revision_of(await self._any.call(REVISE_COSTS, revise_request_of(passes, job), timeout), job.model)

    async def plans(
        self,
        batches: Iterable[Sequence[Length]],
        *,
        profile: Profile,
        model: Model | None = None,
        pp: int = 1,
        dp: int = 1,
        tp: int = 1,
        cp: int = 1,
        ep: int = 1,
        options: Options | None = None,
        ahead: int = 4,
        first_iteration: int = 0,
    ) -> AsyncIterator[Plan]:
        """See Client.plans. What is left of it when the iteration ends is cancelled."""
        if ahead < 1:
            raise ValueError(f"ahead: {ahead} is below 1")
        profile = profile_of(profile)
        under_way: deque[asyncio.Task[Plan]] = deque()
        try:
            for number, lengths in enumerate(batches, first_iteration):
                plan = self.plan(
                    lengths, profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, ep=ep, options=options, iteration=number
                )
                under_way.append(asyncio.create_task(plan))
                if len(under_way) > ahead:
                    yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def job(
        self,
        job_id: str,
        *,
        profile: Profile,
        model: Model | None = None,
        pp: int = 1,
        dp: int = 1,
        tp: int = 1,
        cp: int = 1,
        ep: int = 1,
        options: Options | None = None,
        look_ahead: int = 16,
        iterations: int = 0,
        first_iteration: int = 0,
        fixed_costs: bool = False,
        timeout: float | None = None,
    ) -> AsyncJob:
        """See Client.job."""
        job = registered_job_of(
            job_of(profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, ep=ep, options=options),
            job_id=job_id,
            look_ahead=look_ahead,
            iterations=iterations,
            first_iteration=first_iteration,
            fixed_costs=fixed_costs,
        )
        await self._leader.call(REGISTER_JOB, planner_service_pb2.RegisterJobRequest(job=job), timeout)
        return AsyncJob(self._leader, job)

    async def find_job(self, job_id: str, *, timeout: float | None = None) -> AsyncJob:
        """See Client.find_job."""
        found = await self._leader.call(GET_JOB, job_request_of(job_id), timeout)
        return AsyncJob(self._leader, found.job)
