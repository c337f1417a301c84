"""The pages of docs/frameworks: each listing and command runs, with the real framework where it is installed."""

import importlib.util
import json
import os
import subprocess
import sys
import types
import unittest
from unittest import mock

import planners

sys.path.insert(0, str(planners.ROOT / "planner/client/python/tests"))
from pages import ADDRESS, commands_of, run_listings


def has(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


PLANNER = os.environ.get("PENSTOCK_PLANNER")


@unittest.skipUnless(PLANNER and has("grpc"), "PENSTOCK_PLANNER names no planner, or there is no grpcio")
class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        import penstock

        cls.planner = penstock.local(PLANNER)
        cls.addClassCleanup(cls.planner.close)

    def listings(self, page: str, **names: object) -> dict[str, object]:
        return run_listings(f"docs/frameworks/{page}.md", self.planner.address, names)[0]

    def commands(self, page: str, *more: str) -> list[dict[str, object]]:
        """What each command of a page prints last, with shorter runs."""
        printed = []
        for command in commands_of(f"docs/frameworks/{page}.md"):
            words = [*command.replace(ADDRESS, self.planner.address).split(), *more]
            start = {"python3": [sys.executable], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}[words[0]]
            done = subprocess.run([*start, *words[1:]], capture_output=True, text=True, timeout=300, check=False, cwd=planners.ROOT)
            self.assertEqual(done.returncode, 0, f"{command}: {done.stderr[-2000:]}")
            printed.append(json.loads(done.stdout.splitlines()[-1]))
        return printed

    def check_losses(self, printed: list[dict[str, object]]) -> None:
        for one in printed:
            self.assertEqual(len(one["losses"]), len(printed[0]["losses"]))
            for ours, first in zip(one["losses"], printed[0]["losses"], strict=True):
                self.assertAlmostEqual(ours, first, delta=1e-5)

    @unittest.skipUnless(os.environ.get("PENSTOCK_BINARY"), "PENSTOCK_BINARY names no program")
    def test_entry(self) -> None:
        path = os.pathsep.join([os.path.dirname(os.environ["PENSTOCK_BINARY"]), os.environ.get("PATH", "")])
        with mock.patch.dict(os.environ, {"PATH": path}):
            groups = self.listings("README")["groups"]
        self.assertEqual(sorted(place for replica in groups for part in replica for place in part), list(range(8)))

    @unittest.skipUnless(has("torch"), "torch 2.11.0 is not installed: see tests/frameworks/run")
    def test_pytorch(self) -> None:
        import torch

        class Dataset(list):
            lengths = [3, 5, (2, 7), 4] * 16

        dataset = Dataset(torch.full((sum(length) if isinstance(length, tuple) else length,), 1.0) for length in Dataset.lengths)
        weight = torch.zeros((), requires_grad=True)
        gradients = []

        class Optimizer:
            def step(self) -> None:
                gradients.append(weight.grad.item())

            def zero_grad(self) -> None:
                weight.grad = None

        names = {"dataset": dataset, "packed": torch.cat, "summed_loss": lambda row: (weight * row).sum(), "optimizer": Optimizer()}
        self.listings("pytorch", **names)
        # Each batch of 32 has every token of its samples once, whatever the micro-batches. The loss counts targets, of a sample without
        # input one less.
        self.assertEqual(len(gradients), 2)
        for gradient in gradients:
            self.assertAlmostEqual(gradient, 8 * (3 + 5 + 9 + 4) / (8 * (2 + 4 + 7 + 3)), places=5)

    @unittest.skipUnless(has("torch"), "torch 2.11.0 is not installed: see tests/frameworks/run")
    def test_pytorchs_example_has_the_losses_of_the_padded_loop(self) -> None:
        printed = self.commands("pytorch", "--steps", "2", "--batch", "8", "--micro-batch", "4")
        self.assertEqual([(one["way"], one["replicas"]) for one in printed], [("padded", 1), ("planned", 1), ("planned", 2)])
        self.check_losses(printed)

    @unittest.skipUnless(has("torch", "transformers", "accelerate"), "transformers 5.24.0 is not installed: see tests/frameworks/run")
    def test_hugging_face(self) -> None:
        import hugging_face_test

        if not hugging_face_test.has("transformers"):
            self.skipTest("transformers has no BatchRebalanceSampler: see tests/frameworks/run")
        names = {"model": hugging_face_test.tiny_model(), "dataset": hugging_face_test.token_rows(64), "padded": hugging_face_test.padded}
        trainer = self.listings("hugging_face", **names)["trainer"]
        self.assertEqual(trainer.state.global_step, 1)
        printed = self.commands("hugging_face", "--steps", "2", "--batch", "8", "--accumulation", "4")
        self.assertEqual([one["way"] for one in printed], ["own", "rebalanced", "planned"])
        self.check_losses(printed)

    @unittest.skipUnless(has("torch", "megatron"), "megatron-core 0.16.1 is not installed: see tests/frameworks/run")
    def test_megatron(self) -> None:
        from groups_test import DpBalancedScheduler
        from megatron.core.datasets import data_schedule

        loader = types.SimpleNamespace(
            config=types.SimpleNamespace(max_seqlen_per_dp_cp_rank=8192), dp_cp_group=planners.RanksOfAGroup(8)
        )
        # What the development branch has there.
        names = {"scheduler_map": {}, "DpBalancedScheduler": DpBalancedScheduler}
        with mock.patch.multiple(data_schedule, create=True, **names):
            self.listings("megatron", loader=loader)
            made = data_schedule.scheduler_map["penstock"](8192, 1, 8, None)
        samples = list(enumerate(planners.lengths_like_tasks(64)))
        own = loader.cp_balancing_scheduler.get_groups_and_subsamples(samples, None)[1]
        self.assertEqual(own, made.get_groups_and_subsamples(samples))
        self.assertEqual({len(step) for step in own}, {8})

    @unittest.skipUnless(has("torch", "verl", "tensordict"), "verl 0.9.1 is not installed: see tests/frameworks/run")
    def test_verl(self) -> None:
        import torch
        from tensordict import TensorDict
        from verl.utils import seqlen_balancing

        own = seqlen_balancing.rearrange_micro_batches
        undo = self.listings("verl")["undo"]
        self.addCleanup(undo)
        self.assertIsNot(seqlen_balancing.rearrange_micro_batches, own)
        mask = torch.ones(4, 5, dtype=torch.long)
        batch = TensorDict({"input_ids": mask, "attention_mask": mask}, batch_size=[4])
        places = seqlen_balancing.rearrange_micro_batches(batch, max_token_len=10)[1]
        self.assertEqual(sorted(place for part in places for place in part), [0, 1, 2, 3])

    @unittest.skipUnless(has("torch", "torchtitan", "torchdata"), "torchtitan 0.3.0 is not installed: see tests/frameworks/run")
    def test_torchtitan(self) -> None:
        samples = [[7] * (length + 1) for length in planners.lengths_like_tasks(256)]
        names = self.listings("torchtitan", samples=samples, dp_rank=1, dp_world_size=8)
        self.assertEqual(tuple(names["inputs"]["input"].shape), (1, 8192))


if __name__ == "__main__":
    unittest.main()
