"""rearrange_micro_batches beside verl's own (0.9.1)."""

import importlib.util
import os
import unittest

import planners

PRESENT = all(importlib.util.find_spec(name) for name in ("verl", "torch", "tensordict"))


@unittest.skipUnless(PRESENT, "verl 0.9.1 is not installed: see tests/frameworks/run")
@unittest.skipUnless(os.environ.get("PENSTOCK_BINARY"), "PENSTOCK_BINARY names no program")
class Verl(unittest.TestCase):
    def batch(self, lengths: list[int]):
        import torch
        from tensordict import TensorDict

        width = max(lengths)
        mask = torch.tensor([[1] * length + [0] * (width - length) for length in lengths])
        numbers = torch.arange(len(lengths)).unsqueeze(1).expand(-1, width).contiguous()
        return TensorDict({"input_ids": numbers, "attention_mask": mask}, batch_size=[len(lengths)])

    def rearranged(self, lengths: list[int], cap: int, **options):
        from penstock.adapters.verl import rearrange_micro_batches

        return rearrange_micro_batches(self.batch(lengths), cap, planner=planners.real_planner(), **options)

    def check(self, lengths: list[int], cap: int, **options):
        micro_batches, places = self.rearranged(lengths, cap, **options)
        self.assertEqual(sorted(place for part in places for place in part), list(range(len(lengths))))
        for micro_batch, part in zip(micro_batches, places, strict=True):
            self.assertEqual(micro_batch["input_ids"][:, 0].tolist(), part)
            self.assertLessEqual(int(micro_batch["attention_mask"].sum()), cap)
        return places

    def test_the_limit_is_hard(self) -> None:
        self.check(planners.lengths_like_tasks(64, longest=1000), 1100)

    def test_counts_as_verl_asks(self) -> None:
        lengths = planners.lengths_like_tasks(64, longest=1000)
        self.assertEqual(len(self.check(lengths, 4000, num_batches_divided_by=4)) % 4, 0)
        self.assertGreaterEqual(len(self.check(lengths, 4000, min_num_micro_batch=40)), 40)

    def test_forced_groups_stay_together(self) -> None:
        places = self.check(planners.lengths_like_tasks(64, longest=500), 2000, force_group_size=2)
        for part in places:
            self.assertTrue(all(part[at + 1] == part[at] + 1 for at in range(0, len(part), 2)))

    def test_order_comes_back_as_verl_restores_it(self) -> None:
        import torch
        from verl.utils.seqlen_balancing import restore_dynamic_batch

        lengths = planners.lengths_like_tasks(32, longest=500)
        micro_batches, places = self.rearranged(lengths, 2000)
        joined = torch.cat([micro_batch["input_ids"][:, 0] for micro_batch in micro_batches])
        self.assertEqual(restore_dynamic_batch(joined, places).tolist(), list(range(32)))

    def test_installed_it_is_what_verl_calls(self) -> None:
        from penstock.adapters import verl as adapter
        from verl.utils import seqlen_balancing

        own = seqlen_balancing.rearrange_micro_batches
        undo = adapter.install(planners.real_planner())
        try:
            places = seqlen_balancing.rearrange_micro_batches(self.batch([5, 6, 7, 8]), max_token_len=13)[1]
        finally:
            undo()
        self.assertEqual(sorted(place for part in places for place in part), [0, 1, 2, 3])
        self.assertIs(seqlen_balancing.rearrange_micro_batches, own)


if __name__ == "__main__":
    unittest.main()
