"""The scheduler beside Megatron Core's own (0.16.1), by the rules that its data loader relies on."""

import importlib.util
import os
import unittest

import planners

PRESENT = importlib.util.find_spec("megatron") is not None and importlib.util.find_spec("torch") is not None


@unittest.skipUnless(PRESENT, "megatron-core 0.16.1 is not installed: see tests/frameworks/run")
@unittest.skipUnless(os.environ.get("PENSTOCK_BINARY"), "PENSTOCK_BINARY names no program")
class Megatron(unittest.TestCase):
    RANKS = 8

    def scheduled(self, lengths: list[int], rank_tokens: int):
        from penstock.adapters.megatron import PenstockScheduler

        scheduler = PenstockScheduler(rank_tokens, planners.RanksOfAGroup(self.RANKS), planners.real_planner())
        numbered = [(100 + place, length) for place, length in enumerate(lengths)]
        return scheduler, dict(numbered), *scheduler.get_groups_and_subsamples(numbered, None)

    def check_rules(self, lengths: list[int], rank_tokens: int) -> None:
        scheduler, length_of, groups, ids = self.scheduled(lengths, rank_tokens)
        seen: dict[int, int] = {}
        for step, (step_lengths, step_ids) in enumerate(zip(groups, ids, strict=True)):
            self.assertEqual(len(step_ids), self.RANKS)
            self.assertEqual(step_lengths, [[length_of[sample] for sample in rank] for rank in step_ids])
            for rank, samples in enumerate(step_ids):
                self.assertTrue(samples, "a rank is empty")
                members = [r for r, other in enumerate(step_ids) if samples[0] in other]
                self.assertEqual(members, list(range(members[0], members[0] + len(members))))
                self.assertEqual(members[0] % len(members), 0, "not aligned")
                self.assertTrue(all(step_ids[member] == samples for member in members))
                self.assertGreaterEqual(len(members), scheduler.gpus_needed(max(step_lengths[rank])))
                for sample in samples:
                    self.assertIn(seen.setdefault(sample, step), {step})
        self.assertEqual(sorted(seen), sorted(length_of))

    def test_short_samples_only(self) -> None:
        self.check_rules(planners.lengths_like_tasks(96), 8192)

    def test_long_samples_get_spans(self) -> None:
        self.check_rules([8192, 5000, 3000, 3000, 1500, *planners.lengths_like_tasks(64, longest=1024)], 1024)

    def test_only_long_samples(self) -> None:
        self.check_rules([3000, 2100], 1024)

    def test_a_sample_for_more_ranks_than_there_are_is_named(self) -> None:
        with self.assertRaisesRegex(ValueError, "sample 100: its 9000 tokens need 16 ranks, there are 8"):
            self.scheduled([9000], 1024)

    def test_is_what_megatrons_loader_calls(self) -> None:
        from megatron.core.datasets.data_schedule import HybridCPDataLoaderWrapper
        from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler

        scheduler, _, _, _ = self.scheduled([100] * 8, 1024)
        self.assertIsInstance(scheduler, BalancedCPScheduler)
        self.assertIn("cp_balancing_scheduler", HybridCPDataLoaderWrapper.__init__.__code__.co_names)


if __name__ == "__main__":
    unittest.main()
