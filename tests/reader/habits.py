"""What execution.md says of Penstock's own planner, and does not ask of others: deps, lengths of rectangles, the order of reductions."""

from contents import expected_contents
from reading import PASSES
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
    instructions = reading.programs[rank].instructions
    first_forward = next((item for item in instructions if reading.op(item) == "FORWARD"), None)
    last_compute = None
    for item in instructions:
        key = reading.key(item)
        needed = contents.get(key, [])
        if key.op == "RECV":
            expected = [] if last_compute is None else [last_compute]
        elif key.op in ("REDUCE_GRADIENTS", "RESHARD"):
            expected = _last_passes(by_key, needed)
        else:
            if key.op in PASSES and item is not first_forward:
                # The order of the stream says that the parameters are there.
                needed = [other for other in needed if other.op != "RESHARD"]
            expected = sorted(by_key[other].id for other in needed if other in by_key)
        report.compare(TOPIC, reading.place(rank, item), "deps", sorted(item.deps), expected)
        if reading.stream(item) == "COMPUTE":
            last_compute = item.id


def _last_passes(by_key, passes):
    """Of each stage the pass that is listed last."""
    last = {}
    for key in passes:
        if key in by_key:
            last[key.stage] = max(last.get(key.stage, 0), by_key[key].id)
    return sorted(last.values())


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
