"""Which instructions a program must hold, and what must end before each starts (execution.md, section 3)."""

from reading import PASSES, Key

STREAMS = {
    ("SEND", 0): "NEXT",
    ("RECV", 1): "NEXT",
    ("RECV", 0): "PREVIOUS",
    ("SEND", 1): "PREVIOUS",
    ("REDUCE_GRADIENTS", 0): "COLLECTIVE",
    ("RESHARD", 0): "COLLECTIVE",
    ("RESHARD", 1): "COLLECTIVE",
}


def stream_of(key):
    return STREAMS.get((key.op, key.part), "COMPUTE")


def expected_contents(reading, rank):
    """{key: keys that must end before it starts} of all instructions that the program of a rank must hold.

    A RECV needs nothing: its deps are about memory, not about data.
    """
    result = {}
    stages = reading.pipeline_of(rank).stages_of(rank)
    for index, _ in enumerate(reading.micro_batches(rank)):
        for stage in stages:
            result.update(_of_micro_batch(reading, rank, stage, index))
    if reading.forward_only:
        return _of_forward_passes(result, stages, reading.world.parameter_shares)
    result.update(_of_shares(result, stages) if reading.world.parameter_shares else _of_reductions(result, stages))
    return result


def _of_forward_passes(contents, stages, parameter_shares):
    """What is left where nothing is learnt: no gradient, no pass back, no sum and no update (section 16)."""
    of_gradients = {("SEND", 1), ("RECV", 1), ("WAIT", 1), ("WAIT", 3), ("FREE", 1), ("BACKWARD", 0)}
    result = {key: needed for key, needed in contents.items() if (key.op, key.part) not in of_gradients}
    for key in result:
        if (key.op, key.part) == ("FREE", 2):
            result[key] = [key._replace(op="FORWARD", part=0)]
    if parameter_shares:
        before = Key("RESHARD", stages[0].index, 0, 0)
        result = {key: needed + [before] if key.op == "FORWARD" else needed for key, needed in result.items()}
        result[before] = []
    return result


def _of_reductions(contents, stages):
    """The sums of gradients behind all passes of their stages, and the update behind these."""
    result = {Key("REDUCE_GRADIENTS", stage.index, 0, 0): _passes(contents, [stage]) for stage in stages}
    return {**result, Key("OPTIMIZER_STEP", stages[0].index, 0, 0): list(result)}


def _of_shares(contents, stages):
    """Where ranks have shares: parameters come from there before all passes, gradients go there behind all."""
    lowest = stages[0].index
    before, behind = Key("RESHARD", lowest, 0, 0), Key("RESHARD", lowest, 0, 1)
    passes = _passes(contents, stages)
    result = {key: contents[key] + [before] for key in passes}
    return {**result, before: [], behind: passes, Key("OPTIMIZER_STEP", lowest, 0, 0): [behind]}


def _passes(contents, stages):
    indices = {stage.index for stage in stages}
    return [key for key in contents if key.op in PASSES and key.stage in indices]


def _of_micro_batch(reading, rank, stage, index):
    """The same for one micro-batch on one stage."""

    def key(op, part=0, at=stage.index):
        return Key(op, at, index, part)

    split = key("BACKWARD_INPUT") in reading.by_key[rank]
    later_split = key("BACKWARD_INPUT", at=stage.index + 1) in reading.by_key[rank]
    backward = key("BACKWARD_INPUT" if split else "BACKWARD")
    last_pass = key("BACKWARD_WEIGHT" if split else "BACKWARD")
    receives = reading.pipeline_of(rank).crosses_before(stage)

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
