"""A scheduler for the `scheduler_map` of Megatron Core's development branch, which no released package has (as of 0.19.2).

    from megatron.core.datasets import data_schedule
    data_schedule.scheduler_map["penstock"] = scheduler_of(data_schedule.DpBalancedScheduler, planner)

The name must be among those that the configuration's field for it allows. Every rank must get the same plan: give all the same planner.
How samples are laid out: spans.py. Imports nothing of Megatron; tested with a stand-in for the base class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.adapters.groups import GroupPlanner
from penstock.adapters.spans import Schedule, ranks_needed, schedule_of


def scheduler_of(base: type[Any], planner: GroupPlanner) -> type[Any]:
    """A subclass of `base`, Megatron's DpBalancedScheduler, whose micro-batches a planner chose. Samples have as many context ranks
    as they need (`is_dynamic_cp`)."""

    class PenstockScheduler(base):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.is_dynamic_cp = True

        def get_groups_and_subsamples(self, sample_id_seqlens: Sequence[tuple[int, int]]) -> Schedule:
            """[micro-batch][data x context rank][sample ids]. Raises ValueError as spans.schedule_of."""
            return schedule_of(
                sample_id_seqlens,
                self.dp_size * self.cp_size,
                lambda length: ranks_needed(length, self.max_seqlen_per_dp_cp_rank),
                planner,
                multiple_of=self.microbatch_group_size_per_vp_stage or 1,
            )

    return PenstockScheduler
