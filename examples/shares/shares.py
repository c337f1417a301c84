"""What each rank has of each micro-batch of a GPT's plan (`penstock plan --out plan.json`), from execution.md, section 10, alone."""
import json
import sys

def sample_tokens(sample):
    """(sample_id, position, whether the loss asks for the token behind it) of each token of a sample."""
    inputs = sample.get("input_tokens", 0)
    length = inputs + sample.get("target_tokens", 0)
    return [(int(sample.get("sample_id", 0)), place, inputs <= place + 1 < length) for place in range(length)]

def rows_of(micro_batch, samples):
    """The tokens of each row, padding as sample None."""
    tokens = [sample_tokens(samples[index]) for index in micro_batch["samples"]]
    if micro_batch["layout"] == "LAYOUT_CONCATENATED":
        ends = micro_batch["row_samples"]
        tokens = [sum(tokens[first:last], []) for first, last in zip(ends, ends[1:])]
    goes_on = micro_batch["layout"] == "LAYOUT_PADDED"
    length = micro_batch.get("target_length", 0)
    return [row + [(None, place if goes_on else 0, False) for place in range(len(row), length)] for row in tokens]

def pieces_of(length, first, ranks, context):
    """The parts [begin, end) of a row of this length, over context ranks [first, first + ranks), that one of them has."""
    if not first <= context < first + ranks:
        return []
    bounds = [index * length // (2 * ranks) for index in range(2 * ranks + 1)]
    chunk = context - first
    return [(0, length)] if ranks == 1 else [(bounds[i], bounds[i + 1]) for i in (chunk, 2 * ranks - 1 - chunk)]

def share_of(rows, spans, context):
    """Every piece is a sequence of queries; it sees, causally, its row's keys from 0 to the piece's end."""
    share = {"tokens": [], "position_ids": [], "loss_mask": [], "cu_seqlens": [0], "key_lengths": []}
    for row, (first, ranks) in zip(rows, spans):
        for begin, end in pieces_of(len(row), first, ranks, context):
            share["tokens"] += [(sample, None if sample is None else place) for sample, place, _ in row[begin:end]]
            share["position_ids"] += [place for _, place, _ in row[begin:end]]
            share["loss_mask"] += [learnt for _, _, learnt in row[begin:end]]
            share["cu_seqlens"].append(len(share["tokens"]))
            share["key_lengths"].append(end)
    return share

def shares_of(planned):
    """Yields (stage, rank, micro-batch of its replica, share); all tensor ranks of a context rank have the same share."""
    plan = planned["plan"]
    for replica, topology in zip(plan["replicas"], plan["topology"]["replicas"]):
        for number, micro_batch in enumerate(replica.get("micro_batches", [])):
            rows = rows_of(micro_batch, planned["batch"]["samples"])
            spans = list(zip(micro_batch.get("span_first", []), micro_batch.get("span_ranks", []))) or [(0, 1)] * len(rows)
            shares = [share_of(rows, spans, context) for context in range(plan["mesh"].get("context", 1))]
            for stage, group in enumerate(topology["stages"]):
                for place, rank in enumerate(group["ranks"]):
                    yield stage, rank, number, shares[place * len(shares) // len(group["ranks"])]

if __name__ == "__main__":
    for stage_, rank_, number_, share_ in shares_of(json.load(open(sys.argv[1], encoding="utf-8"))):
        print(json.dumps({"stage": stage_, "rank": rank_, "micro_batch": number_, **share_}))
