"""Which instructions a program must hold, and what must end before each starts (execution.md, section 3)."""

from collections import defaultdict

from reading import PASSES, Key

STREAMS = {
    ("SEND", 0): "NEXT",
    ("RECV", 1): "NEXT",
    ("RECV", 0): "PREVIOUS",
    ("SEND", 1): "PREVIOUS",
    ("REDUCE_GRADIENTS", 0): "COLLECTIVE",
}


def stream_of(key):
    return STREAMS.get((key.op, key.part), "COMPUTE")


def expected_contents(reading, rank):
    """{key: keys that must end before it starts} of all instructions that the program of a rank must hold.

    A RECV needs nothing: its deps are about memory, not about data.
    """
    result = {}
    pipeline = reading.pipeline
    stages = pipeline.stages_of(rank)
    last_passes = defaultdict(list)
    for index, _ in enumerate(reading.micro_batches(rank)):
        for stage in stages:
            result.update(_of_micro_batch(reading, rank, stage, index))
            last_passes[stage.index] += [Key(op, stage.index, index, 0) for op in PASSES]
    for stage in stages:
        passes = [key for key in last_passes[stage.index] if key in result]
        result[Key("REDUCE_GRADIENTS", stage.index, 0, 0)] = passes
    result[Key("OPTIMIZER_STEP", stages[0].index if stages else 0, 0, 0)] = [
        Key("REDUCE_GRADIENTS", stage.index, 0, 0) for stage in stages
    ]
    return result


def _of_micro_batch(reading, rank, stage, index):
    """The same for one micro-batch on one stage."""

    def key(op, part=0, at=stage.index):
        return Key(op, at, index, part)

    split = key("BACKWARD_INPUT") in reading.by_key[rank]
    later_split = key("BACKWARD_INPUT", at=stage.index + 1) in reading.by_key[rank]
    backward = key("BACKWARD_INPUT" if split else "BACKWARD")
    last_pass = key("BACKWARD_WEIGHT" if split else "BACKWARD")
    receives = reading.pipeline.crosses_before(stage)

    result = {}
    forward_needs, backward_needs = [], [key("FORWARD")]
    if stage.loads:
        result[key("LOAD")] = []
        forward_needs.append(key("LOAD"))
        result[key("FREE", 2)] = [last_pass]
    if receives:
        result[key("RECV", 0)] = []
        result[key("WAIT", 0)] = [key("RECV", 0)]
        forward_needs.append(key("WAIT", 0))
        result[key("SEND", 1)] = [backward]
        result[key("WAIT", 3)] = [key("SEND", 1)]
        result[key("FREE", 1)] = [key("WAIT", 3)]
    elif not stage.is_first:
        forward_needs.append(key("FORWARD", at=stage.index - 1))
    if stage.crosses_after:
        result[key("SEND", 0)] = [key("FORWARD")]
        result[key("WAIT", 2)] = [key("SEND", 0)]
        result[key("FREE", 0)] = [key("WAIT", 2)]
        result[key("RECV", 1)] = []
        result[key("WAIT", 1)] = [key("RECV", 1)]
        backward_needs.append(key("WAIT", 1))
    elif not stage.is_last:
        backward_needs.append(key("BACKWARD_INPUT" if later_split else "BACKWARD", at=stage.index + 1))
    result[key("FORWARD")] = forward_needs
    result[backward] = backward_needs
    if split:
        result[last_pass] = [backward]
    return result
