"""What a context rank has of a GPT's micro-batch, as numpy arrays: execution.md, section 10.

All tensor ranks of a context rank have the same share. examples/shares/shares.py says the same in plain lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from penstock.plan import MicroBatch, Plan, Span

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RankShare:
    """Pieces of rows end to end; a piece is a sequence of queries and sees, causally, its row's keys from 0 to its own end.

    samples       [tokens] place of the token's sample in the plan's lengths; -1: padding
    tokens        [tokens] place of the token in its sample; -1: padding
    position_ids  [tokens]
    loss_mask     [tokens] whether the loss asks for the token behind this one
    cu_seqlens    [pieces + 1] cumulative lengths of the pieces, from 0 (int32, as attention kernels take them)
    key_lengths   [pieces] keys that the last query of each piece sees (int32)
    """

    samples: Integers
    tokens: Integers
    position_ids: Integers
    loss_mask: npt.NDArray[np.bool_]
    cu_seqlens: npt.NDArray[np.int32]
    key_lengths: npt.NDArray[np.int32]


# [sample or -1, token or -1, position, 0 or 1] x tokens
_Row = Integers


# (input, target) tokens of samples
_Lengths = Sequence[tuple[int, int]]


def _sample(lengths: _Lengths, index: int) -> _Row:
    inputs, targets = lengths[index]
    places = np.arange(inputs + targets, dtype=np.int64)
    learnt = (inputs <= places + 1) & (places + 1 < inputs + targets)
    return np.stack([np.full_like(places, index), places, places, learnt.astype(np.int64)])


def _padded(row: _Row, length: int, goes_on: bool) -> _Row:
    places = np.arange(row.shape[1], length, dtype=np.int64)
    nothing = np.full_like(places, -1)
    zero = np.zeros_like(places)
    return np.concatenate([row, np.stack([nothing, nothing, places if goes_on else zero, zero])], axis=1)


def _rows(lengths: _Lengths, micro_batch: MicroBatch) -> list[_Row]:
    rows = [_sample(lengths, index) for index in micro_batch.samples]
    if micro_batch.layout == "CONCATENATED":
        ends = micro_batch.row_samples
        empty = np.zeros((4, 0), dtype=np.int64)
        rows = [np.concatenate([empty, *rows[first:last]], axis=1) for first, last in pairwise(ends)]
    # Positions go on in the padding of PADDED, where a row is a sample.
    return [_padded(row, micro_batch.target_length, micro_batch.layout == "PADDED") for row in rows]


def pieces_of(length: int, span: Span, context: int) -> list[tuple[int, int]]:
    """The parts [begin, end) of a row of `length` tokens that context rank `context` has: of 2 n equal chunks the i-th from
    the front and the i-th from the back, so that all ranks have equal work under a causal mask."""
    if not span.first <= context < span.first + span.ranks:
        return []
    if span.ranks == 1:
        return [(0, length)]
    chunks = 2 * span.ranks
    place = context - span.first
    return [(chunk * length // chunks, (chunk + 1) * length // chunks) for chunk in (place, chunks - 1 - place)]


def share_of(plan: Plan, replica: int, micro_batch: int, context: int = 0) -> RankShare:
    """The share of a context rank. Raises IndexError for what the plan does not have, ValueError for a T5's plan."""
    degree = max(1, plan.message.mesh.context)
    if not 0 <= context < degree:
        raise IndexError(f"context: {context} is not below the plan's mesh.context, {degree}")
    if plan.message.model.encoder_layers:
        raise ValueError(_ENCODER)
    return share_of_micro_batch(plan.lengths, plan.replicas[replica][micro_batch], context)


_ENCODER = "plan: shares are those of a decoder-only model; this plan is of an encoder-decoder"


def share_of_micro_batch(lengths: _Lengths, micro_batch: MicroBatch, context: int = 0) -> RankShare:
    """The same of a micro-batch alone, of RankProgram.micro_batches with its `lengths`; `samples` are then places in
    RankProgram.sample_ids. Raises ValueError for a T5's."""
    if micro_batch.source_length:
        raise ValueError(_ENCODER)
    pieces: list[_Row] = [np.zeros((4, 0), dtype=np.int64)]
    ends, keys = [0], []
    for row, span in zip(_rows(lengths, micro_batch), micro_batch.spans, strict=True):
        for begin, end in pieces_of(row.shape[1], span, context):
            pieces.append(row[:, begin:end])
            ends.append(ends[-1] + end - begin)
            keys.append(end)
    samples, tokens, positions, learnt = np.concatenate(pieces, axis=1)
    return RankShare(samples, tokens, positions, learnt.astype(np.bool_), np.array(ends, np.int32), np.array(keys, np.int32))
