"""The package with a real planner: PENSTOCK_PLANNER names the program."""

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

# First: see there.
from planner_process import MESH, PLANNER, PROFILE, ROOT, PlannerProcess, WithAPlanner
from pages import ADDRESS, commands_of, run_listings

import penstock
from penstock import errors
from penstock.request import job_of, request_of

LENGTHS = [900, 120, (30, 300), 3000, 7, 65, 512, 2048]


class WithAClient(WithAPlanner):
    @property
    def client(self) -> penstock.Client:
        return self.planner.client


class Plans(WithAClient):
    def test_every_sample_is_in_one_micro_batch(self) -> None:
        plan = self.client.plan(LENGTHS, **MESH)
        samples = [sample for replica in plan.replicas for micro_batch in replica for sample in micro_batch.samples]
        self.assertEqual(sorted(samples), list(range(len(LENGTHS))))
        self.assertGreater(plan.predicted_seconds, 0)
        self.assertEqual(len(plan.replicas), 2)

    def test_ranks_may_have_other_memory_than_the_others(self) -> None:
        limits = [{"rank": 1, "bytes": 10**15}]
        plan = self.client.plan(LENGTHS, options={"rank_memory_limits": limits}, **MESH)
        found = [program.memory_limit_bytes for program in plan.message.programs]
        self.assertEqual(found[1], 10**15)
        self.assertEqual(len(set(found)), 2)

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


class Pages(WithAClient):
    """Listings and commands of the documentation run as they stand."""

    def test_python(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            names, said = run_listings("docs/python.md", self.planner.address, {"folder": folder})
        self.assertIn("SPLIT_BACKWARD", said)
        self.assertEqual(names["iterations"], list(range(6)))

    def test_plans_as_a_service(self) -> None:
        command = next(one for one in commands_of("docs/plans_as_a_service.md") if one.startswith("penstock-planner "))
        flags = [word for word in command.split()[1:] if not word.startswith("--listen=")]
        with tempfile.TemporaryDirectory() as folder:
            planner = PlannerProcess(self, folder, *flags)
            names, _ = run_listings("docs/plans_as_a_service.md", planner.address, {"folder": folder})
            self.assertLess(names["revision"].error_after, names["revision"].error_before)
            self.assertGreater(names["later"].predicted_seconds, names["plan"].predicted_seconds)
            self.check_bench(planner.address, Path(folder) / "plan_batch_request.bin")

    def check_bench(self, address: str, request: Path) -> None:
        """The page's other command, where benchmarks are built."""
        command = next(one for one in commands_of("docs/plans_as_a_service.md") if "service_bench" in one)
        words = [str(Path(PLANNER).parent / "service_bench"), *command.split()[1:]]
        if not Path(words[0]).exists():
            return
        job = job_of(model=None, tp=1, cp=1, ep=1, options=None, **MESH)
        request.write_bytes(request_of(LENGTHS, job, iteration=0).SerializeToString())
        words = [{ADDRESS: address, request.name: str(request)}.get(word, word) for word in words]
        done = subprocess.run([*words, "--calls", "8"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["count"], 8)


class TheExampleOfABatch(WithAClient):
    def run_example(self, *more: str) -> str:
        script = ROOT / "examples/plan/plan_of_a_batch.py"
        words = [sys.executable, "-B", str(script), "--planner", self.planner.address, "--samples", "64", *more]
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_says_lengths_and_what_each_policy_takes(self) -> None:
        said = self.run_example()
        self.assertEqual(sum(int(count) for count in re.findall(r" tokens +(\d+)  #*$", said, re.MULTILINE)), 64)
        rows = re.findall(r"^([A-Z_]+) +([0-9.]+) +(\d+) +(\d+)% +([0-9.]+)%$", said, re.MULTILINE)
        self.assertEqual([row[0] for row in rows], ["PADDING", "CONCATENATED", "TOKEN_BUDGET", "PACKED", "DYNAMIC"])
        seconds = {row[0]: float(row[1]) for row in rows}
        self.assertEqual(min(seconds, key=seconds.__getitem__), "DYNAMIC")

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
    def test_draws_the_plan(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder) / "plan.png"
            self.run_example("--picture", str(picture))
            self.assertEqual(picture.read_bytes()[1:4], b"PNG")


class Costs(WithAClient):
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
        after = self.client.plan(LENGTHS, profile=revision.profile, pp=4, dp=2)
        self.assertGreater(after.predicted_seconds, 1.3 * before.predicted_seconds)
        with tempfile.TemporaryDirectory() as folder:
            revision.save(f"{folder}/profile.json")
            saved = self.client.plan(LENGTHS, profile=f"{folder}/profile.json", pp=4, dp=2)
        self.assertEqual(saved.predicted_seconds, after.predicted_seconds)

    def test_a_pass_that_cannot_be_is_named(self) -> None:
        with self.assertRaisesRegex(ValueError, r"passes\[1\].kind: 'sideways'"):
            self.client.revise_costs(
                [penstock.MeasuredPass("forward", 0, [9], 1.0), penstock.MeasuredPass("sideways", 0, [9], 1.0)],  # type: ignore[arg-type]
                **MESH,
            )
        with self.assertRaises(errors.InvalidArgument) as raised:
            self.client.revise_costs([penstock.MeasuredPass("forward", 7, [9], 1.0)], **MESH)
        self.assertIn("passes[0]", raised.exception.message)


class Failures(WithAClient):
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
                with self.assertRaises((errors.Unavailable, errors.DeadlineExceeded)):
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
