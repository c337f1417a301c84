"""What execution.md says of Penstock's own planner, and does not ask of others: deps, lengths of rectangles, the order of reductions."""

from contents import expected_contents
from token_sums import side_lengths

TOPIC = "habits"


def check(reading, report):
    for rank in range(len(reading.programs)):
        _check_deps(reading, rank, report)
        _check_reductions(reading, rank, report)
    _check_lengths(reading, report)


def _check_deps(reading, rank, report):
    """Deps as the table of section 3 lists them."""
    by_key = reading.by_key[rank]
    contents = expected_contents(reading, rank)
    last_compute = None
    for item in reading.programs[rank].instructions:
        key = reading.key(item)
        needed = contents.get(key, [])
        if key.op == "RECV":
            expected = [] if last_compute is None else [last_compute]
        elif key.op == "REDUCE_GRADIENTS":
            passes = [by_key[other].id for other in needed if other in by_key]
            expected = [max(passes)] if passes else []
        else:
            expected = sorted(by_key[other].id for other in needed if other in by_key)
        report.compare(TOPIC, reading.place(rank, item), "deps", sorted(item.deps), expected)
        if reading.stream(item) == "COMPUTE":
            last_compute = item.id


def _check_reductions(reading, rank, report):
    """Stages are reduced in descending order."""
    stages = [item.stage for item in reading.programs[rank].instructions if reading.op(item) == "REDUCE_GRADIENTS"]
    report.compare(TOPIC, f"rank {rank}", "order of reductions", stages, sorted(stages, reverse=True))


def _check_lengths(reading, report):
    """A padded rectangle is as long as its longest sample."""
    for replica, messages in enumerate(reading.plan.replicas):
        for index, micro_batch in enumerate(messages.micro_batches):
            if reading.layout(micro_batch) != "PADDED" or not micro_batch.samples:
                continue
            lengths = [side_lengths(reading.is_t5, reading.samples[sample]) for sample in micro_batch.samples]
            expected = tuple(max(side) for side in zip(*lengths))
            stated = (micro_batch.source_length, micro_batch.target_length)
            report.compare(TOPIC, f"replica {replica}, micro-batch {index}", "lengths", stated, expected)
