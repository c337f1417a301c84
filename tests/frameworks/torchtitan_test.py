"""Planned rows through torchtitan's own ParallelAwareDataloader (0.3.0)."""

import importlib.util
import os
import unittest

import planners

PRESENT = all(importlib.util.find_spec(name) for name in ("torchtitan", "torch", "torchdata"))


@unittest.skipUnless(PRESENT, "torchtitan 0.3.0 is not installed: see tests/frameworks/run")
@unittest.skipUnless(os.environ.get("PENSTOCK_BINARY"), "PENSTOCK_BINARY names no program")
class Torchtitan(unittest.TestCase):
    ROW = 512

    def setUp(self) -> None:
        lengths = planners.lengths_like_tasks(64, longest=self.ROW)
        # Each sample's tokens are its own number and its positions', so rows say whose they are.
        self.samples = [[1000 * (place + 1) + at for at in range(length + 1)] for place, length in enumerate(lengths)]

    def loader(self, rank: int):
        from penstock.adapters.torchtitan import PlannedRows
        from torchtitan.components.dataloader import ParallelAwareDataloader

        rows = PlannedRows(
            self.samples, planners.real_planner(), samples_of_a_batch=32, row_tokens=self.ROW, dp_rank=rank, dp_world_size=2)
        return rows, ParallelAwareDataloader(rows, rank, 2, batch_size=1)

    def test_ranks_see_each_sample_once_in_rows_of_one_length(self) -> None:
        seen: list[int] = []
        for rank in range(2):
            rows, loader = self.loader(rank)
            count = len(rows.rows_of_batch(0)[rank])
            self.assertEqual(count, len(rows.rows_of_batch(0)[1 - rank]))
            for (inputs, labels), _ in zip(loader, range(count)):
                self.assertEqual(tuple(inputs["input"].shape), (1, self.ROW))
                tokens, positions = inputs["input"][0].tolist(), inputs["positions"][0].tolist()
                for token, position, label in zip(tokens, positions, labels[0].tolist(), strict=True):
                    if label != -100:
                        self.assertEqual((token % 1000, label), (position, token + 1))
                        seen += [token // 1000 - 1] if position == 0 else []
        self.assertEqual(sorted(seen), list(range(32)))

    def test_goes_on_from_its_state(self) -> None:
        _, loader = self.loader(0)
        rows = iter(loader)
        for _ in range(3):
            next(rows)
        state = loader.state_dict()
        after = [next(rows)[0]["input"].tolist() for _ in range(12)]
        _, again = self.loader(0)
        again.load_state_dict(state)
        resumed = iter(again)
        self.assertEqual([next(resumed)[0]["input"].tolist() for _ in range(12)], after)


if __name__ == "__main__":
    unittest.main()
