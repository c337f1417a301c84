"""transformers' Trainer, and TRL's on top of it, with micro-batches of a plan: a BatchRebalanceSampler (transformers 5.24.0).

    class Trainer(PlannedTrainer, transformers.Trainer):
        planner = my_planner

The Trainer gives every rank `gradient_accumulation_steps` micro-batches an optimizer step, so the plan's are joined or split to
that number. Use a collator without padding (transformers' DataCollatorWithFlattening, or TRL's
DataCollatorForLanguageModeling(padding_free=True)) with attention for lengths that vary (flash attention): the micro-batches are
planned as packed rows. Without such attention plan padded rows (the option "layout": "LAYOUT_CHOICE_PADDED"), set
`padded_rows = True`, and use a collator that pads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.adapters.groups import GroupPlanner, checked, with_count, with_samples
from transformers.trainer_pt_utils import BatchRebalanceSampler  # type: ignore[import-untyped,import-not-found,attr-defined,unused-ignore]


class PlannedSampler(BatchRebalanceSampler):  # type: ignore[misc,unused-ignore]
    """A batch sampler that knows its rank, for one Trainer. Arguments as BatchRebalanceSampler's, and the planner.

    `padded_rows`: the collator pads, so micro-batches are joined by the lengths of their samples.
    """

    def __init__(self, *arguments: Any, planner: GroupPlanner, padded_rows: bool = False, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.planner = planner
        self.padded_rows = padded_rows

    def _assign(self, indices: Sequence[int], lengths: Sequence[int]) -> list[list[list[int]]]:
        """[rank][accumulation step][index in the dataset]; called by the base class for each global batch."""
        ranks, steps = self.dp_size, self.grad_accum
        groups = checked(self.planner(lengths, ranks), len(lengths), ranks)
        groups = [with_count(rank, lengths, steps, padded=self.padded_rows) for rank in with_samples(groups, lengths, steps)]
        return [[[indices[place] for place in micro_batch] for micro_batch in rank] for rank in groups]


class PlannedTrainer:
    """Mix-in for transformers.Trainer and its subclasses (TRL's): set `planner` (and `padded_rows` where the collator pads) on the
    class or the object, and `train_sampling_strategy="batch_rebalance"` in its arguments."""

    planner: GroupPlanner
    padded_rows: bool = False

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        own = super()._get_train_sampler(train_dataset)  # type: ignore[misc]
        if not isinstance(own, BatchRebalanceSampler):
            raise ValueError('train_sampling_strategy: must be "batch_rebalance" for planned micro-batches')  # noqa: TRY004
        return PlannedSampler(
            own.lengths,
            own.effective_batch_size,
            own.dp_size,
            own.grad_accum,
            shuffle=own.shuffle,
            seed=own.seed,
            rank=own.rank,
            drop_last=own.drop_last,
            planner=self.planner,
            padded_rows=self.padded_rows,
        )
