"""The client that blocks. Of several threads each may use it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from penstock import compact
from penstock.channel import Security, names_several
from penstock.connection import Connection
from penstock.job import Job
from penstock.errors import PenstockError
from penstock.job_messages import job_request_of
from penstock.measured import MeasuredPass, Revision, revise_request_of, revision_of
from penstock.methods import GET_JOB, PLAN_BATCH, REGISTER_JOB, REVISE_COSTS
from penstock.plan import Plan, plan_of
from penstock.request import Length, Model, Options, Profile, job_of, profile_of, registered_job_of, request_of
from penstock.v1 import planner_service_pb2


class Client:
    """Asks one planner, or any of several, for plans of single batches, of which planners keep nothing; and has jobs at the one
    that leads.

    `addresses`: "host:port", "a:7070,b:7070", or "dns:///planners:7070" for a name that has the addresses of all. Does not
    connect yet. `timeout`: seconds from a call to its answer, repetitions included. A planner that cannot be reached is tried
    again, with growing pauses, until then (the C++ client's PlanBatch leaves that to its caller).
    """

    def __init__(self, addresses: str, *, security: Security | None = None, timeout: float = 60.0) -> None:
        security = security or Security()
        self._any = Connection(addresses, leader=False, security=security, timeout=timeout)
        self._leader = (
            Connection(addresses, leader=True, security=security, timeout=timeout) if names_several(addresses) else self._any
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends calls that are under way, those of jobs too."""
        self._any.close()
        self._leader.close()

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
        ep: int = 1,
        options: Options | None = None,
        iteration: int = 0,
        timeout: float | None = None,
    ) -> Plan:
        """The plan of one batch.

        lengths    tokens of each sample: those that are learnt, or (input, target)
        profile    path of a profile file (its JSON), or the message
        model      as the message or its JSON form; None: the profile file's
        pp, dp, tp, cp, ep  the mesh: pipeline, data, tensor, context and expert degree
        options    PlanningOptions, or its JSON form: {"policy": "POLICY_PACKED", "token_cap": 8192}

        Raises ValueError (naming the argument) and OSError before anything is sent, then a PenstockError:
        InvalidArgument, ResourceExhausted, DeadlineExceeded, Unavailable.
        """
        job = job_of(profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, ep=ep, options=options)
        request = request_of(lengths, job, iteration=iteration)
        try:
            response = self._any.call(PLAN_BATCH, request, timeout)
        except PenstockError as failure:
            if not compact.is_wanted(failure):
                raise
            request.compact_version = compact.VERSION
            response = self._any.call(PLAN_BATCH, request, timeout)
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
        ep: int = 1,
        options: Options | None = None,
        timeout: float | None = None,
    ) -> Revision:
        """The profile fitted to what passes took; plan with it from then on. Raises what `plan` raises."""
        job = job_of(profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, ep=ep, options=options)
        return revision_of(self._any.call(REVISE_COSTS, revise_request_of(passes, job), timeout), job.model)

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
        ep: int = 1,
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
                        ep=ep,
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

    def job(
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
    ) -> Job:
        """Registers a job, whose batches the planner plans ahead of time; the same again finds the job that is there.

        job_id       letters, digits, '-', '_' and '.'
        look_ahead   iterations beyond the slowest rank that are planned
        iterations   of the whole job, which is then finished; 0: until it is drained
        first_iteration  of this run
        fixed_costs  plans follow the profile alone, whatever is reported
        The others as in `plan`. Where options name no layers_per_stage, the planner chooses them once, for all iterations.

        Raises what `plan` raises, and AlreadyExists where another job has the id.
        """
        job = registered_job_of(
            job_of(profile=profile, model=model, pp=pp, dp=dp, tp=tp, cp=cp, ep=ep, options=options),
            job_id=job_id,
            look_ahead=look_ahead,
            iterations=iterations,
            first_iteration=first_iteration,
            fixed_costs=fixed_costs,
        )
        self._leader.call(REGISTER_JOB, planner_service_pb2.RegisterJobRequest(job=job), timeout)
        return Job(self._leader, job)

    def find_job(self, job_id: str, *, timeout: float | None = None) -> Job:
        """A job that somebody has registered, by its id alone. Raises NotFound."""
        found = self._leader.call(GET_JOB, job_request_of(job_id), timeout)
        return Job(self._leader, found.job)
