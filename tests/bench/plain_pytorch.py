"""A plain PyTorch training loop of the GPT that Penstock trains: what a user would write, with fused AdamW and
scaled_dot_product_attention. Prints JSON: seconds of every iteration, and tokens of an iteration.

    plain_pytorch.py --tokens samples.jsonl --micro-batch 8 --order given|length --iterations 5 ...

Every line of the file has {"tokens": [...]}; all samples are an iteration's batch. A micro-batch is padded at its end to its
longest sample: under a causal mask nothing sees what is behind it, and its loss is ignored.
"""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional

IGNORED = -100


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden)
        self.query_key_value = nn.Linear(hidden, 3 * hidden)
        self.attention_output = nn.Linear(hidden, hidden)
        self.feed_forward_norm = nn.LayerNorm(hidden)
        self.feed_forward_in = nn.Linear(hidden, 4 * hidden)
        self.feed_forward_out = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        rows, length, hidden = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(rows, length, 3, self.heads, hidden // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_output(attended.transpose(1, 2).reshape(rows, length, hidden))
        inner = functional.gelu(self.feed_forward_in(self.feed_forward_norm(x)), approximate="tanh")
        return x + self.feed_forward_out(inner)


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, vocab, positions):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.blocks = nn.Sequential(*(Block(hidden, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def padded(samples):
    """Tokens and labels [rows, length]; the label of a position is the token after it."""
    length = max(map(len, samples))
    tokens = torch.zeros(len(samples), length, dtype=torch.long)
    labels = torch.full((len(samples), length), IGNORED)
    for row, sample in enumerate(samples):
        tokens[row, : len(sample)] = torch.tensor(sample)
        labels[row, : len(sample) - 1] = tokens[row, 1 : len(sample)]
    return tokens, labels


def iteration(model, optimizer, samples, micro_batch, loss_tokens):
    for begin in range(0, len(samples), micro_batch):
        tokens, labels = padded(samples[begin : begin + micro_batch])
        logits = model(tokens).flatten(0, 1)
        loss = functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum") / loss_tokens
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--order", choices=["given", "length"], default="given")
    for flag in ("micro-batch", "iterations", "layers", "hidden", "heads", "vocab", "positions", "threads"):
        parser.add_argument("--" + flag, type=int, required=True)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    with open(args.tokens) as lines:
        samples = [json.loads(line)["tokens"] for line in lines]
    if args.order == "length":
        samples.sort(key=len)
    model = Gpt(args.layers, args.hidden, args.heads, args.vocab, args.positions)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    seconds = []
    for _ in range(args.iterations):
        begin = time.perf_counter()
        iteration(model, optimizer, samples, args.micro_batch, sum(len(sample) - 1 for sample in samples))
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds, "tokens": sum(map(len, samples)), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
