"""A plain PyTorch loop that trains a small GPT on samples of very different lengths, padded or with planned micro-batches.

    train.py planned --planner 127.0.0.1:7070       (without --planner: one of its own)
    train.py padded
    torchrun --standalone --nproc-per-node 2 train.py planned    two replicas

Both ways take the same global batches and divide every micro-batch's summed loss by the loss tokens of its batch, so their losses
are the same up to rounding. Tokens are random; lengths are those of examples/lengths.csv. Prints JSON: losses and tokens/s.
"""

import argparse
import csv
import json
import os
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.utils.data import DataLoader

HERE = Path(__file__).resolve().parent
PROFILE = HERE / "profile.json"  # of this model on one core: penstock-worker profile
LAYERS, HIDDEN, HEADS, VOCABULARY, LONGEST = 4, 256, 4, 4096, 1024
IGNORED = -100


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
        self.query_key_value = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.projection = nn.Linear(HIDDEN, HIDDEN)
        self.feed_forward = nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))

    def attention(self, x):
        rows, length, _ = x.shape
        query, key, value = self.query_key_value(x).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return attended.transpose(1, 2).reshape(rows, length, HIDDEN)

    def forward(self, x, cu_seqlens):
        """x: [rows, length, hidden]; samples of a packed row lie between `cu_seqlens`, and see nothing of each other. On a GPU a kernel
        for lengths that vary takes them as they are."""
        normed = self.norms[0](x)
        if cu_seqlens is None:
            attended = self.attention(normed)
        else:
            attended = torch.cat([self.attention(normed[:, begin:end]) for begin, end in pairwise(cu_seqlens)], dim=1)
        x = x + self.projection(attended)
        return x + self.feed_forward(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(LONGEST, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens, positions, cu_seqlens=None):
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x, cu_seqlens)
        return self.head(self.norm(x))


class Samples:
    """Random tokens; `lengths`: (input, target) of each sample, of which the loss counts the target."""

    def __init__(self, count):
        with open(HERE.parent / "lengths.csv", newline="") as file:
            rows = [(int(row["input_tokens"]), int(row["target_tokens"])) for row, _ in zip(csv.DictReader(file), range(count))]
        targets = [min(target, LONGEST // 2) for _, target in rows]
        self.lengths = [(min(inputs, LONGEST - target), target) for (inputs, _), target in zip(rows, targets)]
        generator = torch.Generator().manual_seed(3)
        self.tokens = [torch.randint(VOCABULARY, (sum(length),), generator=generator) for length in self.lengths]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        """Tokens, and labels: for each the token behind it, where that is of the target."""
        inputs, tokens = self.lengths[index][0], self.tokens[index]
        labels = torch.full_like(tokens, IGNORED)
        first = max(inputs, 1)
        labels[first - 1 : -1] = tokens[first:]
        return tokens, labels

    def loss_tokens(self, batch):
        return sum(int((self[index][1] != IGNORED).sum()) for index in batch)


def packed(samples):
    """One row of samples end to end."""
    lengths = [len(tokens) for tokens, _ in samples]
    return {
        "tokens": torch.cat([tokens for tokens, _ in samples])[None],
        "labels": torch.cat([labels for _, labels in samples])[None],
        "positions": torch.cat([torch.arange(length) for length in lengths])[None],
        "cu_seqlens": torch.tensor([0, *lengths]).cumsum(0).tolist(),
    }


def padded(samples):
    """A row for each sample; under a causal mask nothing sees the padding behind it."""
    width = max(len(tokens) for tokens, _ in samples)
    fill = nn.utils.rnn.pad_sequence
    return {
        "tokens": fill([tokens for tokens, _ in samples], batch_first=True),
        "labels": fill([labels for _, labels in samples], batch_first=True, padding_value=IGNORED),
        "positions": torch.arange(width)[None],
    }


def padded_steps(samples, batches, rank, world, micro_batch):
    """(micro-batches, loss tokens of the global batch) of each step, of every world-th sample."""
    for batch in batches:
        own = batch[rank::world]
        yield [padded([samples[i] for i in own[first : first + micro_batch]]) for first in range(0, len(own), micro_batch)], (
            samples.loss_tokens(batch)
        )


def planned_steps(samples, batches, rank, world, client):
    """The same of a plan: what belongs together comes from the planner, batches ahead of the loop."""
    import penstock

    sampler = penstock.PlannedBatchSampler(
        client, samples.lengths, batches, profile=PROFILE, replica=rank, dp=world, options={"layout": "LAYOUT_CHOICE_PACKED"}
    )
    yield from sampler.by_step(DataLoader(samples, batch_sampler=sampler, collate_fn=packed))


def train(steps, world):
    """[loss of each step], seconds."""
    torch.manual_seed(1)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, begin = [], time.perf_counter()
    for micro_batches, loss_tokens in steps:
        total = torch.zeros(())
        for micro_batch in micro_batches:
            labels = micro_batch.pop("labels")
            logits = model(**micro_batch)
            loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum") / loss_tokens
            loss.backward()
            total += loss.detach()
        if world > 1:
            # A sum: each replica has divided by the loss tokens of all.
            for value in (total, *(parameter.grad for parameter in model.parameters())):
                distributed.all_reduce(value)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total.item())
    return losses, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=["padded", "planned"])
    parser.add_argument("--planner", help="host:port; without it one is started")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32, help="samples of a global batch")
    parser.add_argument("--micro-batch", type=int, default=8, help="samples of a padded micro-batch")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        distributed.init_process_group("gloo")
    samples = Samples(arguments.steps * arguments.batch)
    batches = [list(range(first, first + arguments.batch)) for first in range(0, len(samples), arguments.batch)]
    if arguments.way == "padded":
        losses, seconds = train(padded_steps(samples, batches, rank, world, arguments.micro_batch), world)
    else:
        import penstock

        local = None if arguments.planner else penstock.local()
        with local or penstock.Client(arguments.planner) as planner:
            client = planner.client if local else planner
            losses, seconds = train(planned_steps(samples, batches, rank, world, client), world)
    tokens = sum(len(sample) for sample in samples.tokens)
    if rank == 0:
        print(json.dumps({"way": arguments.way, "replicas": world, "losses": losses, "tokens_per_second": tokens / seconds}))


if __name__ == "__main__":
    main()
