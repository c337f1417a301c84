"""Job, for asyncio: the same methods, awaited, and the same iterators, `async for`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing

from penstock import compact
from penstock.async_connection import AsyncConnection, next_of
from penstock.connection import Patience
from penstock.errors import PenstockError, ResourceExhausted
from penstock.job_messages import (
    DEFAULT_WINDOW,
    Batch,
    MeasuredInstruction,
    MeasuredValidation,
    RankProgram,
    Strategy,
    Submissions,
    batch_of,
    ended_before,
    job_request_of,
    program_of,
    ranks_of,
    reader_of,
    reports_of,
    strategies_request_of,
    submission_of,
)
from penstock.methods import (
    CHANGE_STRATEGIES,
    DELETE_JOB,
    DRAIN_JOB,
    GET_ITERATION,
    GET_JOB,
    REPORT_ITERATION,
    STREAM_PROGRAMS,
    SUBMIT_BATCHES,
)
from penstock.plan import Plan, plan_of
from penstock.request import Length
from penstock.v1 import job_pb2, planner_service_pb2


class AsyncJob:
    """See Job; AsyncClient.job makes it."""

    def __init__(self, connection: AsyncConnection, spec: job_pb2.JobSpec) -> None:
        self._connection = connection
        self.spec = spec

    @property
    def ranks(self) -> int:
        return ranks_of(self.spec)

    async def submit(self, batches: Iterable[Batch], first_iteration: int, *, timeout: float | None = None) -> int:
        """See Job.submit."""
        made = [batch_of(batch, number) for number, batch in enumerate(batches, first_iteration)]
        return (await self._connection.call(SUBMIT_BATCHES, submission_of(self.spec.job_id, made), timeout)).next_iteration

    async def programs(
        self, rank: int, *, first_iteration: int | None = None, timeout: float | None = None
    ) -> AsyncGenerator[RankProgram, None]:
        """See Job.programs."""
        iteration = self.spec.first_iteration if first_iteration is None else first_iteration
        stream: AsyncGenerator[planner_service_pb2.StreamProgramsResponse, None] | None = None
        version = 0
        try:
            while True:
                patience = self._patience(timeout)
                message = None
                while message is None:
                    stream = stream or self._connection.stream(
                        STREAM_PROGRAMS,
                        reader_of(self.spec.job_id, rank, iteration, version),
                        waits=patience.waits_for_connection,
                    )
                    try:
                        message = await next_of(stream, patience.left())
                    except StopAsyncIteration:
                        return
                    except PenstockError as failure:
                        stream = None
                        if version == 0 and compact.is_wanted(failure):
                            version = compact.VERSION
                            continue
                        await asyncio.sleep(patience.pause_after(failure))
                yield program_of(message)
                iteration = message.iteration + 1
        finally:
            if stream is not None:
                await stream.aclose()

    async def ahead(
        self,
        batches: Iterable[Batch],
        *,
        rank: int = 0,
        first_iteration: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[RankProgram]:
        """See Job.ahead."""
        first = self.spec.first_iteration if first_iteration is None else first_iteration
        submissions = Submissions(batches, first)
        async with aclosing(self.programs(rank, first_iteration=first, timeout=timeout)) as programs:
            iteration = first
            while await self._submit_ahead(submissions, iteration, self._patience(timeout)):
                program = await anext(programs, None)
                if program is None:
                    raise ended_before(self.spec.job_id, iteration)
                yield program
                iteration += 1

    async def plans(
        self, batches: Iterable[Batch], *, first_iteration: int | None = None, timeout: float | None = None
    ) -> AsyncIterator[Plan]:
        """See Job.plans."""
        async for program in self.ahead(batches, first_iteration=first_iteration, timeout=timeout):
            yield await self.plan(program.iteration, timeout=timeout)

    async def plan(self, iteration: int, *, timeout: float | None = None) -> Plan:
        """See Job.plan."""
        request = planner_service_pb2.GetIterationRequest(job_id=self.spec.job_id, iteration=iteration)
        try:
            found = await self._connection.call(GET_ITERATION, request, timeout)
        except PenstockError as failure:
            if not compact.is_wanted(failure):
                raise
            request.compact_version = compact.VERSION
            found = await self._connection.call(GET_ITERATION, request, timeout)
        return plan_of(found.plan, found.batch.samples)

    async def report(
        self,
        iteration: int,
        rank: int | None = None,
        *,
        seconds: float = 0.0,
        waited: float = 0.0,
        loss: float = 0.0,
        gradient_norm: float = 0.0,
        part_norms: Mapping[str, float] | None = None,
        expert_rows: Iterable[int] = (),
        fullest_expert_rows: Iterable[int] = (),
        measured: Iterable[MeasuredInstruction] = (),
        validation: MeasuredValidation | None = None,
        timeout: float | None = None,
    ) -> None:
        """See Job.report."""
        reports = reports_of(
            self.spec,
            iteration,
            rank,
            seconds=seconds,
            waited=waited,
            loss=loss,
            gradient_norm=gradient_norm,
            part_norms=part_norms or {},
            expert_rows=expert_rows,
            fullest_expert_rows=fullest_expert_rows,
            measured=measured,
            validation=validation,
        )
        for report in reports:
            await self._connection.call(REPORT_ITERATION, report, timeout)

    async def status(self, *, timeout: float | None = None) -> planner_service_pb2.JobStatus:
        """See Job.status."""
        return (await self._connection.call(GET_JOB, job_request_of(self.spec.job_id), timeout)).status

    async def change_strategies(
        self,
        strategies: Iterable[Strategy] = (),
        *,
        typical: Iterable[Length] = (),
        typical_batch_size: int = 0,
        timeout: float | None = None,
    ) -> planner_service_pb2.ChangeStrategiesResponse:
        """See Job.change_strategies."""
        request = strategies_request_of(self.spec.job_id, strategies, typical, typical_batch_size)
        return await self._connection.call(CHANGE_STRATEGIES, request, timeout)

    async def drain(self, *, timeout: float | None = None) -> None:
        """See Job.drain."""
        await self._connection.call(DRAIN_JOB, planner_service_pb2.DrainJobRequest(job_id=self.spec.job_id), timeout)

    async def delete(self, *, force: bool = False, timeout: float | None = None) -> None:
        """See Job.delete."""
        await self._connection.call(
            DELETE_JOB, planner_service_pb2.DeleteJobRequest(job_id=self.spec.job_id, force=force), timeout
        )

    def _patience(self, timeout: float | None) -> Patience:
        return Patience(self._connection.timeout if timeout is None else timeout)

    async def _submit_ahead(self, submissions: Submissions, iteration: int, patience: Patience) -> bool:
        """See Job."""
        window = self.spec.look_ahead_window or DEFAULT_WINDOW
        while submissions.pending is not None and submissions.next_iteration < iteration + window:
            request = submission_of(self.spec.job_id, [submissions.pending])
            try:
                await self._connection.call(SUBMIT_BATCHES, request, patience.left())
            except ResourceExhausted as failure:
                if failure.retry_iteration is None:
                    raise
                if iteration < submissions.next_iteration:
                    break
                await asyncio.sleep(patience.pause_before_another(failure))
            else:
                submissions.taken()
        return iteration < submissions.next_iteration
