"""A job at a planner: its batches are planned while earlier ones are trained on, and every rank reads its programs.

    job = client.job("mix", profile="gpt_7b.json", pp=4, dp=2, look_ahead=8)
    for program in job.ahead(batches, rank=rank):      # submits lengths, yields this rank's programs
        train(program)
        job.report(program.iteration, rank, seconds=...)

One process may submit and the others read (`programs`), or each may submit the same. A planner that keeps its jobs (--store) may
be killed and started again meanwhile: what asks for it waits, and goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing

from penstock import compact
from penstock.connection import Connection, Patience, Stream, next_of
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


class Job:
    """A registered job; Client.job makes it. `spec`: as registered. Calls block, `timeout` seconds at most (the client's where
    none is given), and raise PenstockErrors: NotFound when the planner has no such job (any more), FailedPrecondition when it
    failed or drains, beside those that are named. Of several threads each may use it."""

    def __init__(self, connection: Connection, spec: job_pb2.JobSpec) -> None:
        self._connection = connection
        self.spec = spec

    @property
    def ranks(self) -> int:
        return ranks_of(self.spec)

    def submit(self, batches: Iterable[Batch], first_iteration: int, *, timeout: float | None = None) -> int:
        """Hands over the lengths of consecutive iterations, all or none; the same again is fine. Returns the iteration that is
        expected next.

        Raises InvalidArgument for a sample that cannot be, ResourceExhausted (with `retry_iteration`) beyond the window,
        AlreadyExists where an iteration was submitted with other content.
        """
        made = [batch_of(batch, number) for number, batch in enumerate(batches, first_iteration)]
        return self._connection.call(SUBMIT_BATCHES, submission_of(self.spec.job_id, made), timeout).next_iteration

    def programs(
        self, rank: int, *, first_iteration: int | None = None, timeout: float | None = None
    ) -> Generator[RankProgram, None, None]:
        """The programs of a rank as they are planned, until the job is finished.

        `timeout`: seconds that one program may take to come, a planner that is away included; then DeadlineExceeded, or
        Unavailable where there was no planner. Raises OutOfRange for an iteration that is not held any more.
        """
        iteration = self.spec.first_iteration if first_iteration is None else first_iteration
        stream: Stream[planner_service_pb2.StreamProgramsResponse] | None = None
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
                        message = next_of(stream, patience.left())
                    except StopIteration:
                        return
                    except PenstockError as failure:
                        stream = None
                        if version == 0 and compact.is_wanted(failure):
                            version = compact.VERSION
                            continue
                        time.sleep(patience.pause_after(failure))
                yield program_of(message)
                iteration = message.iteration + 1
        finally:
            if stream is not None:
                stream.cancel()

    def ahead(
        self,
        batches: Iterable[Batch],
        *,
        rank: int = 0,
        first_iteration: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[RankProgram]:
        """Submits batches as far as the job's window goes, and yields the programs of a rank, one for each batch.

        The window opens when all ranks have reported (`report`). Raises what `submit` and `programs` raise; ResourceExhausted only
        where the window stayed shut for `timeout` seconds, so some rank has not reported.
        """
        first = self.spec.first_iteration if first_iteration is None else first_iteration
        submissions = Submissions(batches, first)
        with closing(self.programs(rank, first_iteration=first, timeout=timeout)) as programs:
            iteration = first
            while self._submit_ahead(submissions, iteration, self._patience(timeout)):
                program = next(programs, None)
                if program is None:
                    raise ended_before(self.spec.job_id, iteration)
                yield program
                iteration += 1

    def plans(
        self, batches: Iterable[Batch], *, first_iteration: int | None = None, timeout: float | None = None
    ) -> Iterator[Plan]:
        """Like `ahead`, but yields whole plans, for one process that drives all ranks: report with rank=None."""
        for program in self.ahead(batches, first_iteration=first_iteration, timeout=timeout):
            yield self.plan(program.iteration, timeout=timeout)

    def plan(self, iteration: int, *, timeout: float | None = None) -> Plan:
        """The plan of an iteration. Raises OutOfRange where it is not held, or not planned yet."""
        request = planner_service_pb2.GetIterationRequest(job_id=self.spec.job_id, iteration=iteration)
        try:
            found = self._connection.call(GET_ITERATION, request, timeout)
        except PenstockError as failure:
            if not compact.is_wanted(failure):
                raise
            request.compact_version = compact.VERSION
            found = self._connection.call(GET_ITERATION, request, timeout)
        return plan_of(found.plan, found.batch.samples)

    def report(
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
        """Says that a rank (None: every rank) is done with an iteration: the window opens. The same again is fine.

        seconds   of the iteration, without the wait for its program
        waited    seconds for which there was nothing to do because the program was not there
        measured  what instructions took: the planner's costs follow it (docs/costs.md)
        part_norms  norms of the gradients that the rank speaks for, by part of the model ("embedding", "attention",
                    "feed_forward", "experts", "router", "norms", "head"): of each parameter one rank of the job does
        expert_rows  the rows that came to the rank's experts, layer by layer: costs follow them where ranks divide experts
        fullest_expert_rows  of these the rows of the fullest expert, layer by layer
        validation  what was found, where the batch has one

        Raises FailedPrecondition for an iteration that is not planned, InvalidArgument for an instruction that it has not.
        """
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
            self._connection.call(REPORT_ITERATION, report, timeout)

    def status(self, *, timeout: float | None = None) -> planner_service_pb2.JobStatus:
        """Its state, and `next_iteration`, from which one that was started again goes on submitting."""
        return self._connection.call(GET_JOB, job_request_of(self.spec.job_id), timeout).status

    def change_strategies(
        self,
        strategies: Iterable[Strategy] = (),
        *,
        typical: Iterable[Length] = (),
        typical_batch_size: int = 0,
        timeout: float | None = None,
    ) -> planner_service_pb2.ChangeStrategiesResponse:
        """Has the iterations that are not planned yet run on the fastest of these, a job's workers as they are; returns the numbers
        that they have in its programs, and the first iteration that runs on one. Of a job that was registered with strategies.
        None: says which hold, and changes nothing.

            job.change_strategies([{"pp": 2, "dp": 4}, [{"tp": 4}, {"dp": 4}]])  # a mesh, and two side by side

        typical: lengths such as batches have from now on, of which stages are chosen; none: they stay.

        Unavailable: workers join, or the job is prepared; InvalidArgument names what is wrong."""
        request = strategies_request_of(self.spec.job_id, strategies, typical, typical_batch_size)
        return self._connection.call(CHANGE_STRATEGIES, request, timeout)

    def drain(self, *, timeout: float | None = None) -> None:
        """No more batches are taken; what was accepted is still planned, then the programs end."""
        self._connection.call(DRAIN_JOB, planner_service_pb2.DrainJobRequest(job_id=self.spec.job_id), timeout)

    def delete(self, *, force: bool = False, timeout: float | None = None) -> None:
        """Forgets the job; its id is free again. Readers end with NotFound. `force`: even while Penstock's workers are there."""
        self._connection.call(DELETE_JOB, planner_service_pb2.DeleteJobRequest(job_id=self.spec.job_id, force=force), timeout)

    def _patience(self, timeout: float | None) -> Patience:
        return Patience(self._connection.timeout if timeout is None else timeout)

    def _submit_ahead(self, submissions: Submissions, iteration: int, patience: Patience) -> bool:
        """Submits what the window can take while `iteration` is the next to be read, and waits where it cannot take that one yet.
        False: there is no such batch any more."""
        window = self.spec.look_ahead_window or DEFAULT_WINDOW
        while submissions.pending is not None and submissions.next_iteration < iteration + window:
            request = submission_of(self.spec.job_id, [submissions.pending])
            try:
                self._connection.call(SUBMIT_BATCHES, request, patience.left())
            except ResourceExhausted as failure:
                if failure.retry_iteration is None:
                    raise
                if iteration < submissions.next_iteration:
                    break
                time.sleep(patience.pause_before_another(failure))
            else:
                submissions.taken()
        return iteration < submissions.next_iteration
