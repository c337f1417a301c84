"""Jobs of the package with a real planner: PENSTOCK_PLANNER names the program."""

import asyncio
import itertools
import tempfile
import unittest
import zlib

# First: see there.
from planner_process import MESH, PLANNER, PROFILE, PlannerProcess, WithAPlanner

import penstock
from penstock import compact, errors, methods
from penstock.connection import next_of
from penstock.job_messages import reader_of
from penstock.request import Length
from penstock.v1 import job_pb2, plan_pb2, planner_service_pb2

LENGTHS = [900, 120, (30, 300), 3000, 7, 65, 512, 2048]
# Nothing is chosen from samples, so a job is prepared at once.
STAGES = {"layers_per_stage": [8, 8, 8, 8]}


def batch(iteration: int) -> dict[int, Length]:
    """Samples with ids of their own for every iteration."""
    return {100 * iteration + place: length for place, length in enumerate(LENGTHS[iteration % 4 :])}


def validated_batch(iteration: int) -> penstock.ValidatedBatch:
    return penstock.ValidatedBatch(batch(iteration), {10_000 + place: length for place, length in enumerate(LENGTHS[2:])})


class WithAJob(WithAPlanner):
    def job(self, **more: object) -> penstock.Job:
        """A job of this test alone."""
        job = self.planner.client.job(self.id(), options=STAGES, **MESH, **more)
        self.addCleanup(job.delete)
        return job


class ChangedStrategies(WithAPlanner):
    """Of a job that somebody has registered with strategies, as `penstock up --strategies` does."""

    def job(self) -> penstock.Job:
        plain = self.planner.client.job(self.id() + ".plain", **MESH)
        self.addCleanup(plain.delete)
        spec = job_pb2.JobSpec()
        spec.CopyFrom(plain.spec)
        spec.job_id = self.id()
        spec.planning.parameter_shares = True
        spec.planning.ClearField("layers_per_stage")
        spec.strategies.add().meshes.add().mesh.CopyFrom(spec.mesh)
        request = planner_service_pb2.RegisterJobRequest(job=spec)
        plain._connection.call(methods.REGISTER_JOB, request, 60)
        job = self.planner.client.find_job(self.id())
        self.addCleanup(job.delete)
        return job

    def test_later_iterations_run_on_them(self) -> None:
        job = self.job()
        self.assertEqual(list(job.change_strategies().strategies), [0])
        mesh = {"dp": job.ranks}
        changed = job.change_strategies([mesh], typical=[100, (20, 300)], typical_batch_size=8)
        self.assertEqual((changed.from_iteration, list(changed.strategies)), (0, [1]))
        job.submit([batch(0)], 0)
        self.assertEqual(next(job.programs(0)).message.strategy, 1)
        self.assertEqual(list(job.change_strategies().strategies), [1])

    def test_what_is_wrong_is_named(self) -> None:
        job = self.job()
        with self.assertRaisesRegex(ValueError, r"strategies\[1\]: 'xp' is none of pp"):
            job.change_strategies([{"pp": 2}, {"xp": 2}])
        with self.assertRaisesRegex(errors.InvalidArgument, r"strategies\[0\]"):
            job.change_strategies([[{"pp": 1}, {"dp": job.ranks}]])


class Compact(WithAJob):
    """compact.py is written from the contract alone: what it reads of a planner is what the planner sends in full."""

    MORE_RANKS = {"profile": PROFILE, "pp": 2, "dp": 1, "cp": 4}

    def answers(self, job: penstock.Job, rank: int, version: int) -> planner_service_pb2.StreamProgramsResponse:
        raw = methods.Method(
            "StreamPrograms",
            planner_service_pb2.StreamProgramsRequest.SerializeToString,
            planner_service_pb2.StreamProgramsResponse.FromString,
        )
        stream = job._connection.stream(raw, reader_of(job.spec.job_id, rank, 0, version), waits=True)
        try:
            return next_of(stream, 60)
        finally:
            stream.cancel()

    def test_programs_are_those_that_are_sent_in_full(self) -> None:
        exchanging = self.planner.client.job(self.id() + ".groups", **self.MORE_RANKS)
        self.addCleanup(exchanging.delete)
        for job in (self.job(), exchanging):
            job.submit([validated_batch(0)], 0)
            for rank in range(job.ranks):
                full, columns = self.answers(job, rank, 0), self.answers(job, rank, compact.VERSION)
                self.assertTrue(columns.instruction_columns and columns.micro_batch_columns)
                for one in (columns, columns.validation):
                    self.assertFalse(one.program.instructions or one.samples or one.micro_batches)
                self.assertEqual(compact.unpack_program(columns), full)

    def test_plans_are_those_that_are_sent_in_full(self) -> None:
        job = self.job()
        job.submit([validated_batch(0)], 0)
        request = planner_service_pb2.GetIterationRequest(job_id=job.spec.job_id, iteration=0)
        next(job.programs(0))
        full = job._connection.call(methods.GET_ITERATION, request, 60)
        request.compact_version = compact.VERSION
        self.assertEqual(job._connection.call(methods.GET_ITERATION, request, 60), full)
        self.assertTrue(full.plan.validation.programs[0].instructions)

    def test_what_makes_no_sense_is_refused(self) -> None:
        job = self.job()
        job.submit([batch(0)], 0)
        columns = self.answers(job, 0, compact.VERSION)
        for damaged in (columns.instruction_columns[:-1], columns.instruction_columns + b"x", b"none"):
            message = planner_service_pb2.StreamProgramsResponse.FromString(columns.SerializeToString())
            message.instruction_columns = damaged
            with self.assertRaises(compact.CompactError):
                compact.unpack_program(message)
        bomb = planner_service_pb2.StreamProgramsResponse(instruction_columns=zlib.compress(bytes(compact.MOST_BYTES + 1)))
        with self.assertRaisesRegex(compact.CompactError, "more than"):
            compact.unpack_program(bomb)


class Programs(WithAJob):
    def test_of_all_replicas_have_every_sample_once(self) -> None:
        job = self.job()
        job.submit([batch(0)], 0)
        found = self.planner.client.find_job(self.id())
        by_replica = {}
        for rank in range(job.ranks):
            program = next(found.programs(rank))
            self.assertEqual((program.rank, program.iteration), (rank, 0))
            self.assertTrue(program.instructions)
            by_replica[program.message.program.replica] = program
        self.assertEqual(len(by_replica), 2)
        placed = [
            (program.sample_ids[place], program.lengths[place])
            for program in by_replica.values()
            for micro_batch in program.micro_batches
            for place in micro_batch.samples
        ]
        expected = {number: length if isinstance(length, tuple) else (0, length) for number, length in batch(0).items()}
        self.assertEqual(sorted(placed), sorted(expected.items()))

    def test_have_the_shares_of_the_plan(self) -> None:
        job = self.job()
        job.submit([LENGTHS], 0)
        program, plan = next(job.programs(0)), job.plan(0)
        for number, micro_batch in enumerate(program.micro_batches):
            ours = penstock.share_of_micro_batch(program.lengths, micro_batch)
            whole = penstock.share_of(plan, 0, number)
            self.assertEqual([program.sample_ids[place] for place in ours.samples], whole.samples.tolist())
            self.assertEqual(ours.tokens.tolist(), whole.tokens.tolist())
            self.assertEqual(ours.cu_seqlens.tolist(), whole.cu_seqlens.tolist())

    def test_come_ahead_of_reports_as_far_as_the_window_goes(self) -> None:
        job = self.job(look_ahead=3)
        programs = job.ahead(map(batch, itertools.count()), rank=1)
        self.assertEqual([next(programs).iteration for _ in range(3)], [0, 1, 2])
        self.assertEqual(job.status().next_iteration, 3)
        with self.assertRaises(errors.ResourceExhausted) as raised:
            next(job.ahead([batch(3)], rank=1, first_iteration=3, timeout=1.5))
        self.assertEqual((raised.exception.field, raised.exception.retry_iteration), ("iteration", 3))
        job.report(0)
        self.assertEqual(next(programs).iteration, 3)

    def test_end_with_the_batches_and_with_the_job(self) -> None:
        job = self.job()
        iterations = [program.iteration for program in job.ahead(map(batch, range(5)), rank=7)]
        self.assertEqual(iterations, list(range(5)))
        job.drain()
        self.assertEqual([program.iteration for program in job.programs(0, first_iteration=2)], [2, 3, 4])

    def test_have_the_validation_of_their_batch_which_a_report_has_too(self) -> None:
        job = self.job()
        batches = [batch(0), validated_batch(1)]
        programs = list(job.ahead(batches, rank=0))
        self.assertIsNone(programs[0].validation)
        found = [next(job.programs(rank, first_iteration=1)).validation for rank in range(job.ranks)]
        for rank, validation in enumerate(found):
            self.assertEqual((validation.iteration, validation.rank), (1, rank))
            self.assertNotIn(plan_pb2.OP_BACKWARD, [one.op for one in validation.instructions])
        ids = {number for validation in found for number in validation.sample_ids}
        self.assertEqual(ids, set(batches[1].validation))
        job.report(0)
        with self.assertRaisesRegex(errors.InvalidArgument, "validation is missing"):
            job.report(1)
        job.report(1, validation=penstock.MeasuredValidation(loss=0.25, seconds=1.5))
        summary = job._connection.call(methods.GET_JOB, planner_service_pb2.GetJobRequest(job_id=job.spec.job_id), 60).iterations[1]
        self.assertEqual((summary.validation.loss, summary.validation.measured_ns), (0.25 * job.ranks, 1_500_000_000))

    def test_are_reported_with_norms_by_part_of_the_model(self) -> None:
        job = self.job()
        next(job.ahead([batch(0)], rank=0))
        for rank in range(job.ranks):
            job.report(0, rank, gradient_norm=5.0, part_norms={"head": 1.0, "embedding": 2.0} if rank == 0 else None, expert_rows=[3, 4], fullest_expert_rows=[2, 4])
        summary = job._connection.call(methods.GET_JOB, planner_service_pb2.GetJobRequest(job_id=job.spec.job_id), 60).iterations[0]
        self.assertEqual([(part.part, part.norm) for part in summary.part_norms], [(planner_service_pb2.MODEL_PART_EMBEDDING, 2.0), (planner_service_pb2.MODEL_PART_HEAD, 1.0)])
        with self.assertRaisesRegex(ValueError, "part_norms: 'tail' is no part of a model; those are embedding, attention, "):
            job.report(0, 0, part_norms={"tail": 1.0})
        with self.assertRaisesRegex(ValueError, "rank: is missing; expert_rows are those of one rank"):
            job.report(0, expert_rows=[1])
        with self.assertRaisesRegex(ValueError, "rank: is missing; fullest_expert_rows are those of one rank"):
            job.report(0, fullest_expert_rows=[1])

    def test_whole_plans_come_for_one_who_drives_all_ranks(self) -> None:
        job = self.job(look_ahead=2)
        for number, plan in enumerate(job.plans(map(batch, range(6)))):
            samples = [sample for replica in plan.replicas for micro_batch in replica for sample in micro_batch.samples]
            self.assertEqual(sorted(samples), list(range(len(batch(number)))))
            job.report(number, seconds=plan.predicted_seconds)
        self.assertEqual(job.status().completed_iteration, 6)

    def test_follow_what_instructions_took(self) -> None:
        """Of passes that take twice as long as planned the planner makes other costs for later plans."""
        job = self.job(look_ahead=1)
        for plan in job.plans(map(batch, range(8))):
            for program in plan.message.programs:
                measured = [
                    penstock.MeasuredInstruction(one.id, one.expected_start_ns * 2e-9, one.expected_duration_ns * 2e-9)
                    for one in program.instructions
                ]
                job.report(plan.message.iteration, program.rank, seconds=2 * plan.predicted_seconds, measured=measured)
        self.assertGreater(plan.message.profile_version, 0)

    def test_say_what_ranks_of_a_group_waited_for_each_other(self) -> None:
        waited = penstock.MeasuredInstruction(0, 0.0, 2.0, exchange=0.5)
        job = self.job()
        next(job.ahead([batch(0)], rank=0))
        job.report(0, 0, measured=[waited, penstock.MeasuredInstruction(1, 2.0, 1.0)])
        with self.assertRaisesRegex(errors.InvalidArgument, r"instructions\[0\].exchange_ns is 2500000000: "):
            job.report(0, 1, measured=[penstock.MeasuredInstruction(0, 0.0, 2.0, exchange=2.5)])

    def test_of_asyncio_are_the_same(self) -> None:
        async def iterations(job_id: str) -> list[tuple[int, tuple[int, ...]]]:
            async with penstock.AsyncClient(self.planner.address) as client:
                job = await client.job(job_id, options=STAGES, look_ahead=2, **MESH)
                seen = []
                async for program in job.ahead(map(batch, range(6)), rank=3):
                    seen.append((program.iteration, program.sample_ids))
                    await job.report(program.iteration)
                self.assertEqual((await job.plan(5)).message.iteration, 5)
                await job.drain()
                self.assertEqual([program.iteration async for program in job.programs(3, first_iteration=4)], [4, 5])
                await job.delete()
                return seen

        seen = asyncio.run(iterations(self.id()))
        self.assertEqual([iteration for iteration, _ in seen], list(range(6)))
        for iteration, ids in seen:
            self.assertLessEqual(set(ids), set(batch(iteration)))


class SeveralPlanners(WithAJob):
    def test_the_one_that_leads_has_the_jobs(self) -> None:
        """Of three addresses one has a planner."""
        addresses = f"127.0.0.1:1,{self.planner.address},127.0.0.1:2"
        with penstock.Client(addresses) as client:
            job = client.job(self.id(), options=STAGES, **MESH)
            self.assertEqual([program.iteration for program in job.ahead(map(batch, range(3)))], [0, 1, 2])
            self.assertEqual(client.plan(LENGTHS, **MESH).message.iteration, 0)
            job.delete()


class Failures(WithAJob):
    """Each status that a planner gives to who asks for jobs is an exception of its own that names the field."""

    def check(self, kind: type[errors.PenstockError], field: str, call: object, *arguments: object, **named: object) -> None:
        with self.assertRaises(kind) as raised:
            call(*arguments, **named)  # type: ignore[operator]
        self.assertEqual((raised.exception.field, raised.exception.code), (field, code_of(kind)))

    def test_invalid_argument(self) -> None:
        job = self.job()
        self.check(errors.InvalidArgument, "batches[1].samples[0]", job.submit, [[5], [0]], 0)
        self.check(errors.InvalidArgument, "rank", next, job.programs(99))
        self.check(errors.InvalidArgument, "job.job_id", self.planner.client.job, "a/b", **MESH)

    def test_not_found(self) -> None:
        job = self.planner.client.job(self.id(), options=STAGES, **MESH)
        job.delete()
        for call in (job.status, job.drain, job.delete):
            self.check(errors.NotFound, "job_id", call)
        self.check(errors.NotFound, "job_id", next, job.programs(0))

    def test_already_exists(self) -> None:
        job = self.job()
        job.submit([[5]], 0)
        self.assertEqual(job.submit([[5]], 0), 1)
        self.check(errors.AlreadyExists, "iteration", job.submit, [[6]], 0)
        self.check(errors.AlreadyExists, "job.job_id", self.planner.client.job, self.id(), profile=MESH["profile"], pp=4, dp=1)

    def test_resource_exhausted(self) -> None:
        job = self.job(look_ahead=2)
        self.check(errors.ResourceExhausted, "iteration", job.submit, [[5], [6], [7]], 0)

    def test_failed_precondition(self) -> None:
        job = self.job()
        self.check(errors.FailedPrecondition, "iteration", job.report, 3, 0)
        job.drain()
        self.check(errors.FailedPrecondition, "job_id", job.submit, [[5]], 0)

    def test_out_of_range(self) -> None:
        self.check(errors.OutOfRange, "iteration", self.job().plan, 77)

    def test_deadline_exceeded(self) -> None:
        with self.assertRaises(errors.DeadlineExceeded):
            next(self.job().programs(0, timeout=0.1))

    def test_what_is_wrong_before_anything_is_sent_is_named(self) -> None:
        job = self.job()
        for field, call in {
            "look_ahead": lambda: self.planner.client.job("other", look_ahead=0, **MESH),
            "iterations": lambda: self.planner.client.job("other", iterations=-1, **MESH),
            "seconds": lambda: job.report(0, seconds=-1.0),
            "validation.seconds": lambda: job.report(0, 0, validation=penstock.MeasuredValidation(loss=1.0, seconds=-1.0)),
            r"validation: lengths\[1\]": lambda: job.submit([penstock.ValidatedBatch([5], [5, -1])], 0),
            r"measured\[0\].start": lambda: job.report(0, 0, measured=[penstock.MeasuredInstruction(0, -1.0, 0.0)]),
            r"measured\[0\].exchange": lambda: job.report(0, 0, measured=[penstock.MeasuredInstruction(0, 0.0, 1.0, -0.5)]),
            "rank": lambda: job.report(0, measured=[penstock.MeasuredInstruction(0, 0.0, 0.0)]),
            r"lengths\[3\]": lambda: job.submit([{3: -1}], 0),
        }.items():
            with self.assertRaisesRegex(ValueError, f"^{field}: "):
                call()


class APlannerThatIsKilled(unittest.TestCase):
    """It keeps its jobs in a file; what asks for it waits, and goes on where it was."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.planner = PlannerProcess(self, folder.name, f"--store=sqlite:{folder.name}/planner.db")

    def test_is_waited_for_and_found_again(self) -> None:
        with penstock.Client(self.planner.address) as client:
            job = client.job("killed", options=STAGES, look_ahead=2, **MESH)
            seen = []
            for program in job.ahead(map(batch, range(9)), rank=2):
                seen.append((program.iteration, set(program.sample_ids) <= set(batch(program.iteration))))
                if program.iteration in (3, 6):
                    self.planner.kill()
                    with self.assertRaises((errors.Unavailable, errors.DeadlineExceeded)):
                        job.status(timeout=0.2)
                    # It does not listen yet.
                    self.planner.start()
                job.report(program.iteration)
            self.assertEqual(seen, [(iteration, True) for iteration in range(9)])
            self.assertEqual(job.status().completed_iteration, 9)

    def test_is_waited_for_by_asyncio(self) -> None:
        async def iterations() -> list[int]:
            async with penstock.AsyncClient(self.planner.address) as client:
                job = await client.job("killed", options=STAGES, look_ahead=2, **MESH)
                seen = []
                async for program in job.ahead(map(batch, range(6)), rank=2):
                    seen.append(program.iteration)
                    if program.iteration == 3:
                        self.planner.kill()
                        self.planner.start()
                    await job.report(program.iteration)
                return seen

        self.assertEqual(asyncio.run(iterations()), list(range(6)))

    def test_is_not_waited_for_longer_than_asked(self) -> None:
        with penstock.Client(self.planner.address) as client:
            job = client.job("killed", options=STAGES, **MESH)
            programs = job.programs(0, timeout=0.3)
            self.planner.kill()
            with self.assertRaises((errors.Unavailable, errors.DeadlineExceeded)):
                next(programs)


def code_of(kind: type[errors.PenstockError]) -> object:
    return next(code for code, made in errors._CLASSES.items() if made is kind)


if __name__ == "__main__":
    unittest.main()
