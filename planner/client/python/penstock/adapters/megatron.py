"""Megatron Core's hybrid context parallel with groups of a plan: a BalancedCPScheduler, as PyPI's 0.16.1 has it.

    loader.cp_balancing_scheduler = PenstockScheduler(max_seq_len_per_rank, dp_cp_group, planner)

where `loader` is Megatron's HybridCPDataLoaderWrapper. Every rank must get the same plan: give all the same planner, whose
answers depend on the lengths alone.

Samples that fit one rank are planned, a replica being a rank; longer ones are put on spans of ranks by the number of ranks
that Megatron says they need (`gpus_needed`), widened until no rank of their micro-batch is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler  # type: ignore[import-untyped,import-not-found,unused-ignore]
from penstock.adapters.groups import GroupPlanner, checked, equal_counts

# [micro-batch][rank][sample id or length]
Schedule = list[list[list[int]]]


def spans_filled(needed: Sequence[int], ranks: int) -> list[int]:
    """Spans (ranks, a power of two each, descending) of one micro-batch, doubled smallest first until they fill all ranks."""
    spans = sorted(needed, reverse=True)
    while sum(spans) < ranks:
        spans[-1] *= 2
        spans.sort(reverse=True)
    return spans


class PenstockScheduler(BalancedCPScheduler):  # type: ignore[misc,unused-ignore]
    """A BalancedCPScheduler whose micro-batches a planner chose."""

    def __init__(self, max_seq_len_per_rank: int, dp_cp_group: Any, planner: GroupPlanner) -> None:
        super().__init__(max_seq_len_per_rank, dp_cp_group)
        self.planner = planner

    def get_groups_and_subsamples(
        self, sample_id_seqlens: Sequence[tuple[int, int]], config: Any
    ) -> tuple[Schedule, Schedule]:
        """(lengths, sample ids), both [micro-batch][rank][...]. `config` is not used, as in Megatron's own.

        Raises ValueError where samples are fewer than ranks (unless all need several) or one needs more ranks than there are.
        """
        long = [(i, length) for i, length in sample_id_seqlens if self.gpus_needed(length) > 1]
        short = [(i, length) for i, length in sample_id_seqlens if self.gpus_needed(length) == 1]
        chosen = self._spanned(long) + self._planned(short)
        length_of = dict(sample_id_seqlens)
        return [[[length_of[i] for i in rank] for rank in micro_batch] for micro_batch in chosen], chosen

    def _planned(self, samples: Sequence[tuple[int, int]]) -> Schedule:
        if not samples:
            return []
        ranks: int = self.total_hdp_gpus
        lengths = [length for _, length in samples]
        groups = equal_counts(checked(self.planner(lengths, ranks), len(lengths), ranks), lengths)
        return [[[samples[place][0] for place in rank[step]] for rank in groups] for step in range(len(groups[0]))]

    def _spanned(self, samples: Sequence[tuple[int, int]]) -> Schedule:
        """Longest first, each to the first micro-batch that has as many ranks left as it needs."""
        ranks: int = self.total_hdp_gpus
        steps: list[list[tuple[int, int]]] = []
        for sample, length in sorted(samples, key=lambda pair: (-pair[1], pair[0])):
            needed: int = self.gpus_needed(length)
            if needed > ranks:
                raise ValueError(f"sample {sample}: its {length} tokens need {needed} ranks, there are {ranks}")
            step = next((s for s in steps if sum(span for _, span in s) + needed <= ranks), None)
            if step is None:
                step = []
                steps.append(step)
            step.append((sample, needed))
        return [self._on_ranks(step) for step in steps]

    def _on_ranks(self, step: Sequence[tuple[int, int]]) -> list[list[int]]:
        spans = spans_filled([span for _, span in step], self.total_hdp_gpus)
        return [[sample] for (sample, _), span in zip(step, spans, strict=True) for _ in range(span)]
