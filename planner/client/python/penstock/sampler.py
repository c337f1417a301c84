"""Planned micro-batches for torch.utils.data.DataLoader(batch_sampler=...); needs no torch itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from penstock.client import Client
from penstock.request import Length, Model, Options, Profile

_Item = TypeVar("_Item")


class PlannedBatchSampler:
    """Yields, micro-batch by micro-batch, the dataset's indices that one replica has.

    lengths  of the whole dataset, by index
    batches  global batches: lists of indices. Iterated anew for each epoch, so no generator where there are several
    replica  of `dp`: whose micro-batches are yielded. Every replica's process plans the same and takes its own

    Replicas may have different numbers of micro-batches, and one may have none of a batch: `steps` says what was yielded. Where
    ranks step together after every micro-batch, see penstock.adapters.groups.equal_counts.
    """

    def __init__(
        self,
        client: Client,
        lengths: Sequence[Length],
        batches: Iterable[Sequence[int]],
        *,
        profile: Profile,
        replica: int = 0,
        model: Model | None = None,
        pp: int = 1,
        dp: int = 1,
        options: Options | None = None,
        ahead: int = 4,
    ) -> None:
        if not 0 <= replica < dp:
            raise ValueError(f"replica: {replica} is not below dp, {dp}")
        self._client = client
        self._lengths = lengths
        self._batches = batches
        self._profile = profile
        self._replica = replica
        self._model = model
        self._pp = pp
        self._dp = dp
        self._options = options
        self._ahead = ahead
        # Of each global batch that was begun in this epoch: (its micro-batches, loss tokens of the batch over all replicas). The
        # step of the optimizer is due after the last of them. A DataLoader with workers runs ahead of the loop: read by place.
        self.steps: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        self.steps = []
        batches = [list(batch) for batch in self._batches]
        plans = self._client.plans(
            ([self._lengths[index] for index in batch] for batch in batches),
            profile=self._profile,
            model=self._model,
            pp=self._pp,
            dp=self._dp,
            options=self._options,
            ahead=self._ahead,
        )
        for batch, plan in zip(batches, plans):
            micro_batches = plan.replicas[self._replica]
            self.steps.append((len(micro_batches), plan.loss_tokens))
            for micro_batch in micro_batches:
                yield [batch[place] for place in micro_batch.samples]

    def by_step(self, loader: Iterable[_Item]) -> Iterator[tuple[list[_Item], int]]:
        """(micro-batches, loss tokens of the global batch over all replicas) of each step of the optimizer, from the DataLoader that has
        this sampler. A step has no micro-batch where the replica has none of that batch."""
        step = 0
        gathered: list[_Item] = []
        for micro_batch in loader:
            while self.steps[step][0] == 0:
                yield [], self.steps[step][1]
                step += 1
            gathered.append(micro_batch)
            count, loss_tokens = self.steps[step]
            if len(gathered) == count:
                yield gathered, loss_tokens
                gathered = []
                step += 1
        for _, loss_tokens in self.steps[step:]:
            yield [], loss_tokens
