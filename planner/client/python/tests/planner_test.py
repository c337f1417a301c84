"""The package with a real planner: PENSTOCK_PLANNER names the program."""

import asyncio
import contextlib
import io
import re
import tempfile
import unittest

# First: see there.
from planner_process import MESH, PLANNER, PROFILE, ROOT, PlannerProcess

import penstock
from penstock import errors
from penstock.local_planner import LocalPlanner

LENGTHS = [900, 120, (30, 300), 3000, 7, 65, 512, 2048]


class WithAPlanner(unittest.TestCase):
    planner: LocalPlanner

    @classmethod
    def setUpClass(cls) -> None:
        cls.planner = penstock.local(PLANNER)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.planner.close()

    @property
    def client(self) -> penstock.Client:
        return self.planner.client


class Plans(WithAPlanner):
    def test_every_sample_is_in_one_micro_batch(self) -> None:
        plan = self.client.plan(LENGTHS, **MESH)
        samples = [sample for replica in plan.replicas for micro_batch in replica for sample in micro_batch.samples]
        self.assertEqual(sorted(samples), list(range(len(LENGTHS))))
        self.assertGreater(plan.predicted_seconds, 0)
        self.assertEqual(len(plan.replicas), 2)

    def test_plans_ahead_come_in_order(self) -> None:
        batches = [LENGTHS[i:] + LENGTHS[:i] for i in range(8)]
        plans = list(self.client.plans(batches, ahead=4, **MESH))
        self.assertEqual([plan.message.iteration for plan in plans], list(range(8)))

    def test_sixteen_are_under_way_at_once_with_asyncio(self) -> None:
        async def ask() -> list[penstock.Plan]:
            async with penstock.AsyncClient(self.planner.address) as client:
                return await asyncio.gather(*(client.plan(LENGTHS[: 4 + i % 4], **MESH) for i in range(16)))

        plans = asyncio.run(ask())
        self.assertEqual(len(plans), 16)
        same = self.client.plan(LENGTHS[:4], **MESH)
        self.assertEqual(plans[0].predicted_seconds, same.predicted_seconds)


class Docs(WithAPlanner):
    def test_the_listings_run_as_they_stand(self) -> None:
        page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        listings = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        self.assertTrue(listings)
        for listing in listings:
            listing = listing.replace("127.0.0.1:7070", self.planner.address)
            said = io.StringIO()
            with contextlib.chdir(ROOT), contextlib.redirect_stdout(said):
                exec(compile(listing, "docs/python.md", "exec"), {})
            self.assertTrue(said.getvalue())


class Costs(WithAPlanner):
    def test_follow_what_passes_took(self) -> None:
        """Passes of twice the time: plans with the revised profile take about twice as long."""
        before = self.client.plan(LENGTHS, **MESH)
        durations = {}
        for program in before.message.programs:
            for instruction in program.instructions:
                if instruction.op == penstock.v1.plan_pb2.OP_FORWARD:
                    key = (program.replica, instruction.micro_batch, instruction.stage)
                    durations[key] = instruction.expected_duration_ns * 1e-9
        passes = [
            penstock.MeasuredPass("forward", stage, [LENGTHS[i] for i in before.replicas[replica][number].samples], 2 * seconds)
            for (replica, number, stage), seconds in durations.items()
        ]
        revision = self.client.revise_costs(passes, options={"layers_per_stage": list(before.message.layers_per_stage)}, **MESH)
        self.assertGreater(revision.error_before, 0.4)
        self.assertLess(revision.error_after, 0.1)
        after = self.client.plan(LENGTHS, profile=revision.profile, model=model_of_profile(), pp=4, dp=2)
        self.assertGreater(after.predicted_seconds, 1.3 * before.predicted_seconds)

    def test_a_pass_that_cannot_be_is_named(self) -> None:
        with self.assertRaisesRegex(ValueError, r"passes\[1\].kind: 'sideways'"):
            self.client.revise_costs(
                [penstock.MeasuredPass("forward", 0, [9], 1.0), penstock.MeasuredPass("sideways", 0, [9], 1.0)],  # type: ignore[arg-type]
                **MESH,
            )
        with self.assertRaises(errors.InvalidArgument) as raised:
            self.client.revise_costs([penstock.MeasuredPass("forward", 7, [9], 1.0)], **MESH)
        self.assertIn("passes[0]", raised.exception.message)


def model_of_profile() -> "penstock.v1.job_pb2.ModelSpec":
    from penstock.request import profile_of

    return profile_of(PROFILE).model


class Failures(WithAPlanner):
    def test_a_wrong_field_is_named(self) -> None:
        with self.assertRaises(errors.InvalidArgument) as raised:
            self.client.plan(LENGTHS, profile=PROFILE, pp=999)
        self.assertIn("job.mesh", raised.exception.field)
        with self.assertRaises(errors.InvalidArgument) as raised:
            self.client.plan([], **MESH)
        self.assertIn("batch", raised.exception.message)

    def test_what_does_not_fit_says_what_would(self) -> None:
        with self.assertRaises(errors.PenstockError) as raised:
            self.client.plan([100_000], profile=PROFILE, options={"memory_limit_bytes": 10**9})
        self.assertTrue(raised.exception.message)

    def test_time_that_is_over_is_an_exception_of_its_own(self) -> None:
        with self.assertRaises(errors.DeadlineExceeded):
            self.client.plan([17 + i % 4000 for i in range(4000)], timeout=0.001, **MESH)


class APlannerThatGoesAway(unittest.TestCase):
    def test_is_waited_for_and_found_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            planner = PlannerProcess(self, folder, "--store=memory")
            with penstock.Client(planner.address) as client:
                self.assertTrue(client.plan(LENGTHS, **MESH).replicas)
                planner.kill()
                with self.assertRaises(errors.Unavailable):
                    client.plan(LENGTHS, timeout=0.5, **MESH)
                # It does not listen yet.
                planner.start()
                self.assertTrue(client.plan(LENGTHS, **MESH).replicas)
            planner.kill()
            planner.start()
            self.assertTrue(asyncio.run(ask_once(planner.address)).replicas)

    def test_is_waited_for_by_plans_ahead(self) -> None:
        """It goes while plans are being made, and comes again."""
        with tempfile.TemporaryDirectory() as folder:
            planner = PlannerProcess(self, folder, "--store=memory")
            with penstock.Client(planner.address) as client:
                numbers = []
                for plan in client.plans([LENGTHS] * 24, ahead=4, **MESH):
                    numbers.append(plan.message.iteration)
                    if plan.message.iteration in (5, 12):
                        planner.kill()
                        planner.start()
            self.assertEqual(numbers, list(range(24)))


async def ask_once(address: str) -> penstock.Plan:
    async with penstock.AsyncClient(address) as client:
        return await client.plan(LENGTHS, **MESH)


if __name__ == "__main__":
    unittest.main()
