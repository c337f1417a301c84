"""torchtitan's data loader with rows of a plan: a dataset for ParallelAwareDataloader (torchtitan 0.3.0).

    dataset = PlannedRows(samples, planner, samples_of_a_batch=256, row_tokens=8192, dp_rank=dp_rank, dp_world_size=dp_world_size)
    loader = ParallelAwareDataloader(dataset, dp_rank, dp_world_size, batch_size=1)

Each global batch is planned for all data-parallel ranks: the plan says which rank has which samples, which then fill rows, longest
first. A row holds whole samples end to end with positions that begin anew with each, and is filled up with padding
that the loss ignores: torchtitan compiles for one length. All ranks have the same number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from penstock.adapters.groups import GroupPlanner, MicroBatches, checked, equal_counts, within_cap
from torch.distributed.checkpoint.stateful import Stateful
from torch.utils.data import IterableDataset
from torchtitan.components.loss import IGNORE_INDEX  # type: ignore[import-untyped,import-not-found,unused-ignore]

Row = tuple[dict[str, torch.Tensor], torch.Tensor]


def row_of(samples: Sequence[Sequence[int]], row_tokens: int, padding: int) -> Row:
    """Inputs, positions and labels [row_tokens]: of a sample of n + 1 tokens n inputs, each with the token behind as label."""
    inputs = [token for sample in samples for token in sample[:-1]]
    labels = [token for sample in samples for token in sample[1:]]
    positions = [position for sample in samples for position in range(len(sample) - 1)]
    missing = row_tokens - len(inputs)
    inputs += [padding] * missing
    labels += [IGNORE_INDEX] * missing
    positions += range(missing)
    return {"input": torch.tensor(inputs), "positions": torch.tensor(positions)}, torch.tensor(labels)


class PlannedRows(IterableDataset[Row], Stateful):
    """Rows of one rank, endless: `samples` (token ids, at least 2 and at most row_tokens + 1 each) again and again in their order.

    Samples of an incomplete last batch are left out. Its state is the place in the stream of rows, so a run that goes on from a
    checkpoint sees the rows that the run before would have seen.
    """

    def __init__(
        self,
        samples: Sequence[Sequence[int]],
        planner: GroupPlanner,
        *,
        samples_of_a_batch: int,
        row_tokens: int,
        dp_rank: int,
        dp_world_size: int,
        padding: int = 0,
    ) -> None:
        if not dp_world_size <= samples_of_a_batch <= len(samples):
            raise ValueError(
                f"samples_of_a_batch: {samples_of_a_batch}, must be from {dp_world_size} (ranks) to {len(samples)} (samples)"
            )
        self.samples = samples
        self.planner = planner
        self.samples_of_a_batch = samples_of_a_batch
        self.row_tokens = row_tokens
        self.dp_rank = dp_rank
        self.dp_world_size = dp_world_size
        self.padding = padding
        self.batch = 0
        self.row = 0

    def rows_of_batch(self, batch: int) -> list[MicroBatches]:
        """[rank][row][place in `samples`] of a global batch, counted from 0."""
        first = batch % (len(self.samples) // self.samples_of_a_batch) * self.samples_of_a_batch
        lengths = [len(sample) - 1 for sample in self.samples[first : first + self.samples_of_a_batch]]
        groups = checked(self.planner(lengths, self.dp_world_size), len(lengths), self.dp_world_size)
        # Every row costs the same but for attention, so a rank's samples fill as few of them as they can.
        whole = [[[place for micro_batch in rank for place in micro_batch]] for rank in groups]
        groups = equal_counts([within_cap(rank, lengths, self.row_tokens) for rank in whole], lengths)
        return [[[first + place for place in row] for row in rank] for rank in groups]

    def __iter__(self) -> Iterator[Row]:
        while True:
            rows = self.rows_of_batch(self.batch)[self.dp_rank]
            while self.row < len(rows):
                row = rows[self.row]
                self.row += 1
                yield row_of([self.samples[place] for place in row], self.row_tokens, self.padding)
            self.batch, self.row = self.batch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"batch": self.batch, "row": self.row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.batch, self.row = int(state_dict["batch"]), int(state_dict["row"])
