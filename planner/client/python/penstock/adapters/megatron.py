"""Megatron Core's hybrid context parallel with groups of a plan: a BalancedCPScheduler, as PyPI's 0.16.1 has it.

    loader.cp_balancing_scheduler = PenstockScheduler(max_seq_len_per_rank, dp_cp_group, planner)

where `loader` is Megatron's HybridCPDataLoaderWrapper. Every rank must get the same plan: give all the same planner, whose
answers depend on the lengths alone. How samples are laid out: spans.py; how many ranks one needs says Megatron (`gpus_needed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler  # type: ignore[import-untyped,import-not-found,unused-ignore]
from penstock.adapters.groups import GroupPlanner
from penstock.adapters.spans import Schedule, schedule_of


class PenstockScheduler(BalancedCPScheduler):  # type: ignore[misc,unused-ignore]
    """A BalancedCPScheduler whose micro-batches a planner chose."""

    def __init__(self, max_seq_len_per_rank: int, dp_cp_group: Any, planner: GroupPlanner) -> None:
        super().__init__(max_seq_len_per_rank, dp_cp_group)
        self.planner = planner

    def get_groups_and_subsamples(
        self, sample_id_seqlens: Sequence[tuple[int, int]], config: Any
    ) -> tuple[Schedule, Schedule]:
        """(lengths, sample ids), both [micro-batch][rank][...]. `config` is not used, as in Megatron's own.

        Raises ValueError as spans.schedule_of.
        """
        chosen = schedule_of(sample_id_seqlens, self.total_hdp_gpus, self.gpus_needed, self.planner)
        length_of = dict(sample_id_seqlens)
        return [[[length_of[i] for i in rank] for rank in micro_batch] for micro_batch in chosen], chosen
