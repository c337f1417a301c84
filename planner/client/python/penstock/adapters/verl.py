"""verl's micro-batches from a plan: `rearrange_micro_batches` of verl 0.9.1 with a planner in place of its partition.

    from penstock.adapters import verl
    verl.install(planner)        # before verl's engines are imported, on every rank

A rank asks for a plan of its own samples (one replica). What verl asks beyond a plan is kept: `max_token_len` is a hard
limit, all ranks have one number of micro-batches, and samples of a forced group stay together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from penstock.adapters.groups import GroupPlanner, MicroBatches, checked, with_count, within_cap
from torch import distributed
from verl.utils import (
    seqlen_balancing,  # type: ignore[import-untyped,import-not-found,unused-ignore]
    tensordict_utils,
)
from verl.utils.device import get_device_name  # type: ignore[import-untyped,import-not-found,unused-ignore]


def sample_lengths(batch: Any) -> list[int]:
    """Tokens of each sample, as verl counts them: those of a nested tensor, else those that attention sees."""
    input_ids = batch["input_ids"]
    if input_ids.is_nested:
        return [int(length) for length in input_ids.offsets().diff().tolist()]
    return [int(length) for length in batch["attention_mask"].sum(dim=1).tolist()]


def largest_of_ranks(count: int, group: Any) -> int:
    """The largest `count` that a rank of the group has."""
    counts = torch.tensor([count], device=get_device_name())
    distributed.all_reduce(counts, op=distributed.ReduceOp.MAX, group=group)
    return int(counts.item())


def group_lengths(lengths: Sequence[int], size: int) -> list[int]:
    if len(lengths) % size != 0:
        raise ValueError(f"force_group_size: {len(lengths)} samples are not a multiple of {size}")
    return [sum(lengths[first : first + size]) for first in range(0, len(lengths), size)]


def rearrange_micro_batches(
    batch: Any,
    max_token_len: int,
    dp_group: Any = None,
    num_batches_divided_by: int | None = None,
    same_micro_num_in_dp: bool = True,
    min_num_micro_batch: int | None = None,
    use_dynamic_bsz_balance: bool = True,
    force_group_size: int = 1,
    *,
    planner: GroupPlanner,
) -> tuple[list[Any], MicroBatches]:
    """As verl's: micro-batches, and for each the places of its samples in `batch`. `use_dynamic_bsz_balance` is not used: the
    heaviest comes first.

    Raises ValueError where a sample or a forced group is longer than `max_token_len`, or has too few samples for its count.
    """
    lengths = group_lengths(sample_lengths(batch), force_group_size)
    planned = checked(planner(lengths, 1), len(lengths), 1)[0]
    micro_batches = within_cap(planned, lengths, max_token_len)
    count = max(len(micro_batches), min_num_micro_batch or 1)
    if distributed.is_initialized() and same_micro_num_in_dp and dp_group is not None:
        count = largest_of_ranks(count, dp_group)
    step = num_batches_divided_by or 1
    micro_batches = with_count(micro_batches, lengths, -(-count // step) * step)
    places = [
        [group * force_group_size + member for group in micro_batch for member in range(force_group_size)]
        for micro_batch in micro_batches
    ]
    return [tensordict_utils.index_select_tensor_dict(batch, members) for members in places], places


def install(planner: GroupPlanner) -> Callable[[], None]:
    """Puts the planner's way in place of verl's in `verl.utils.seqlen_balancing`. Returns what undoes it.

    Modules that took the function by name before keep verl's own.
    """
    own = seqlen_balancing.rearrange_micro_batches
    seqlen_balancing.rearrange_micro_batches = partial(rearrange_micro_batches, planner=planner)

    def undo() -> None:
        seqlen_balancing.rearrange_micro_batches = own

    return undo
