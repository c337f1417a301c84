"""What frameworks ask of groups: equal counts, no empty rank, a hard limit, spans of ranks. Needs no framework."""

import os
import unittest

import planners
from penstock.adapters.command import CommandPlanner, PlanningError
from penstock.adapters.groups import checked, equal_counts, with_count, within_cap
from penstock.adapters.megatron_dev import scheduler_of
from penstock.adapters.spans import ranks_needed


def placed(micro_batches: list[list[int]]) -> list[int]:
    return sorted(place for micro_batch in micro_batches for place in micro_batch)


class Checked(unittest.TestCase):
    def test_names_the_sample_that_is_missing_or_twice(self) -> None:
        with self.assertRaisesRegex(ValueError, "sample 1 is missing"):
            checked([[[0], [2]]], 3, 1)
        with self.assertRaisesRegex(ValueError, "sample 0 is there twice"):
            checked([[[0], [0]]], 1, 1)
        with self.assertRaisesRegex(ValueError, "place 7 is not below"):
            checked([[[7]]], 1, 1)
        with self.assertRaisesRegex(ValueError, "1 replicas, 2 were asked for"):
            checked([[[0]]], 1, 2)


class WithCount(unittest.TestCase):
    def test_splits_the_heaviest(self) -> None:
        result = with_count([[0, 1], [2, 3]], [10, 10, 900, 800], 3)
        self.assertEqual(sorted(map(sorted, result)), [[0, 1], [2], [3]])

    def test_joins_the_two_lightest(self) -> None:
        result = with_count([[0], [1], [2]], [10, 900, 20], 2)
        self.assertEqual(sorted(map(sorted, result)), [[0, 2], [1]])

    def test_joins_samples_of_like_lengths_where_rows_are_padded(self) -> None:
        result = with_count([[0], [1], [2], [3]], [100, 10, 90, 11], 2, padded=True)
        self.assertEqual(sorted(map(sorted, result)), [[0, 2], [1, 3]])

    def test_more_micro_batches_than_samples_is_an_error(self) -> None:
        with self.assertRaisesRegex(ValueError, "3 micro-batches cannot be made of 2 samples"):
            with_count([[0, 1]], [1, 1], 3)


class EqualCounts(unittest.TestCase):
    def test_takes_the_largest_count_and_the_multiple(self) -> None:
        result = equal_counts([[[0], [1], [2]], [[3, 4, 5, 6]]], [5, 6, 7, 1, 2, 3, 4], multiple_of=1)
        self.assertEqual([len(replica) for replica in result], [3, 3])
        result = equal_counts([[[0, 1], [2, 7], [8]], [[3, 4, 5, 6]]], [5, 6, 7, 1, 2, 3, 4, 5, 6], multiple_of=2)
        self.assertEqual([len(replica) for replica in result], [4, 4])
        self.assertEqual(placed([m for replica in result for m in replica]), list(range(9)))

    def test_a_replica_with_too_few_samples_takes_the_shortest(self) -> None:
        result = equal_counts([[[0]], [[1, 2], [3, 4]]], [900, 5, 4, 3, 2])
        self.assertEqual([len(replica) for replica in result], [2, 2])
        self.assertIn([4], result[0])

    def test_too_few_samples_are_an_error(self) -> None:
        with self.assertRaisesRegex(ValueError, "1 samples are too few"):
            equal_counts([[[0]], []], [5])


class WithinCap(unittest.TestCase):
    def test_fills_anew_only_what_is_above(self) -> None:
        result = within_cap([[0, 1], [2, 3, 4]], [3, 3, 5, 4, 6], 10)
        self.assertEqual(result[0], [0, 1])
        self.assertEqual(sorted(map(sorted, result[1:])), [[2], [3, 4]])

    def test_a_sample_above_the_limit_is_named(self) -> None:
        with self.assertRaisesRegex(ValueError, r"lengths\[1\]: 11 tokens"):
            within_cap([[0, 1]], [3, 11], 10)


class DpBalancedScheduler:
    """Stands for Megatron's, of which no released package has one: what its constructor keeps."""

    def __init__(self, max_seqlen_per_dp_cp_rank, cp_size, dp_size, microbatch_group_size_per_vp_stage):
        self.max_seqlen_per_dp_cp_rank, self.cp_size, self.dp_size = max_seqlen_per_dp_cp_rank, cp_size, dp_size
        self.microbatch_group_size_per_vp_stage = microbatch_group_size_per_vp_stage
        self.is_dynamic_cp = False


def dealt(lengths: list[int], replicas: int) -> list[list[list[int]]]:
    """A GroupPlanner that gives each replica one micro-batch."""
    return [[list(range(replica, len(lengths), replicas))] for replica in range(replicas)]


class MegatronsDevelopmentBranch(unittest.TestCase):
    """The rules that its data loader relies on."""

    def scheduled(self, lengths: list[int], group_size: int | None = None):
        made = scheduler_of(DpBalancedScheduler, dealt)(1024, 2, 4, group_size)
        self.assertTrue(made.is_dynamic_cp)
        return made.get_groups_and_subsamples([(100 + place, length) for place, length in enumerate(lengths)])

    def check(self, lengths: list[int], steps: list[list[list[int]]]) -> None:
        placed_in = {}
        for number, step in enumerate(steps):
            self.assertEqual(len(step), 8)
            for samples in step:
                self.assertTrue(samples, "a rank is empty")
                members = [rank for rank, other in enumerate(step) if samples[0] in other]
                self.assertEqual(members, list(range(members[0], members[0] + len(members))))
                self.assertEqual(members[0] % len(members), 0, "not aligned")
                self.assertTrue(all(step[member] == samples for member in members))
                longest = max(lengths[sample - 100] for sample in samples)
                self.assertLessEqual(longest, 1024 * len(members))
                for sample in samples:
                    self.assertEqual(placed_in.setdefault(sample, number), number)
        self.assertEqual(sorted(placed_in), list(range(100, 100 + len(lengths))))

    def test_samples_have_as_many_ranks_as_they_need(self) -> None:
        lengths = [5000, 3000, 1025, 1024, *[200] * 20]
        self.check(lengths, self.scheduled(lengths))
        self.check([3000, 2100], self.scheduled([3000, 2100]))

    def test_micro_batches_are_a_multiple_of_what_a_virtual_pipeline_takes(self) -> None:
        lengths = [5000, *[200] * 40]
        steps = self.scheduled(lengths, group_size=4)
        self.check(lengths, steps)
        self.assertEqual(len(steps) % 4, 0)
        with self.assertRaisesRegex(ValueError, "1 micro-batches are no multiple of 4"):
            self.scheduled([5000], group_size=4)

    def test_a_sample_for_more_ranks_than_there_are_is_named(self) -> None:
        with self.assertRaisesRegex(ValueError, "sample 100: its 9000 tokens need 16 ranks, there are 8"):
            self.scheduled([9000])

    def test_ranks_are_a_power_of_two(self) -> None:
        self.assertEqual([ranks_needed(length, 1024) for length in (1, 1024, 1025, 2049, 4096, 4097)], [1, 1, 2, 4, 4, 8])


@unittest.skipUnless(os.environ.get("PENSTOCK_BINARY"), "PENSTOCK_BINARY names no program")
class Command(unittest.TestCase):
    def test_places_every_sample_once(self) -> None:
        lengths = planners.lengths_like_tasks(64)
        groups = planners.real_planner()(lengths, 4)
        self.assertEqual(placed([m for replica in groups for m in replica]), list(range(64)))

    def test_what_the_planner_says_is_raised(self) -> None:
        planner = CommandPlanner(os.environ["PENSTOCK_BINARY"], planners.PROFILE)
        with self.assertRaisesRegex(PlanningError, "--pp: weights, gradients and optimizer state"):
            planner([10, 20], 1)


@unittest.skipUnless(os.environ.get("PENSTOCK_PLANNER"), "PENSTOCK_PLANNER names no planner")
class Connection(unittest.TestCase):
    def test_places_every_sample_once_in_packed_rows(self) -> None:
        lengths = planners.lengths_like_tasks(64)
        planner = planners.connected_planner()
        groups = planner(lengths, 4)
        self.assertEqual(placed([m for replica in groups for m in replica]), list(range(64)))
        self.assertEqual({m.layout for replica in planner.last_plan.replicas for m in replica}, {"PACKED"})

    @unittest.skipUnless(os.environ.get("PENSTOCK_BINARY"), "PENSTOCK_BINARY names no program")
    def test_has_the_groups_of_the_program(self) -> None:
        lengths = planners.lengths_like_tasks(48, seed=2)
        command = CommandPlanner(os.environ["PENSTOCK_BINARY"], planners.PROFILE, ("--memory-mb", "200000", "--effort", "fast"))
        self.assertEqual(planners.connected_planner()(lengths, 2), command(lengths, 2))

    def test_what_the_planner_says_is_raised_with_its_field(self) -> None:
        from penstock import errors

        with self.assertRaises(errors.InvalidArgument) as raised:
            planners.connected_planner()([10, 0, 20], 2)
        self.assertEqual(raised.exception.field, "batch.samples[1]")


if __name__ == "__main__":
    unittest.main()
