"""Damages to plans with PlanningOptions.parameter_shares: most on every rank alike, so that ranks do not contradict one another."""

import copy

from damage import Damage, Inapplicable
from reading import PASSES


def _on_plans_with_shares(change):
    def apply(editor):
        if editor.plan.options is None or not editor.plan.options.parameter_shares:
            raise Inapplicable("parameter_shares")
        change(editor)

    return apply


def _on_every_rank(change):
    """change(editor, program, RESHARD of part 0, RESHARD of part 1)."""

    def apply(editor):
        for program in editor.plan.programs:
            reshards = [item for item in program.instructions if editor.op(item) == "RESHARD"]
            change(editor, program, *reshards)
        count_collectives(editor.plan)

    return apply


def count_collectives(plan):
    """Sequences that follow from the order of the programs."""
    for program in plan.programs:
        counts = {}
        for item in program.instructions:
            if item.collective is not None:
                item.collective.sequence = counts.get(item.collective.group, 0)
                counts[item.collective.group] = item.collective.sequence + 1


def _without(part):
    def change(editor, program, *reshards):
        editor.reorder(program, [item for item in program.instructions if item is not reshards[part]])

    return change


def _move(editor, program, item, position):
    order = [other for other in program.instructions if other is not item]
    order.insert(position, item)
    editor.reorder(program, order)


def _moved_to(part, place):
    """The RESHARD of a part, moved to place(program, ops of its instructions)."""

    def change(editor, program, *reshards):
        ops = [editor.op(item) for item in program.instructions]
        _move(editor, program, reshards[part], place(ops))

    return change


def _behind_first_forward(ops):
    if "FORWARD" not in ops:
        raise Inapplicable("passes")
    return ops.index("FORWARD")


def _before_last_pass(ops):
    passes = [index for index, op in enumerate(ops) if op in PASSES]
    if not passes:
        raise Inapplicable("passes")
    return passes[-1]


def _repeated(part, as_part):
    """One more behind the RESHARD of a part."""

    def change(editor, program, *reshards):
        item = copy.deepcopy(reshards[part])
        item.part = as_part
        _insert(editor, program, reshards[part].id + 1, item)

    return change


def _insert(editor, program, position, item):
    """Gives it an id that no dep names yet, and lets `reorder` number all."""
    item.id = len(program.instructions)
    _move(editor, program, item, position)


def _reductions(editor, program, *reshards):
    """One REDUCE_GRADIENTS more, before that RESHARD to which gradients go."""
    item = copy.deepcopy(reshards[1])
    item.op, item.part = editor.schema.enums["Op"]["OP_REDUCE_GRADIENTS"], 0
    _insert(editor, program, reshards[1].id, item)


def _reductions_instead(editor, program, *reshards):
    reshards[1].op, reshards[1].part = editor.schema.enums["Op"]["OP_REDUCE_GRADIENTS"], 0


def _set_of(part, field, value):
    def change(editor, program, *reshards):
        setattr(reshards[part], field, value)

    return change


def _on_one_rank(change):
    """change(editor, program, RESHARD of part 1), where other ranks are left as they are."""

    def apply(editor):
        if len(editor.plan.programs) == 1:
            raise Inapplicable("several ranks")
        change(editor, *editor.find("RESHARD", lambda item: item.part == 1))

    return apply


def _missing(editor, program, reshard):
    editor.reorder(program, [item for item in program.instructions if item is not reshard])
    count_collectives(editor.plan)


def _other_bytes(editor, program, item):
    item.collective.bytes += 1


def _other_duration(editor, program, item):
    item.expected_duration_ns += 1


def _bytes(editor, program, *reshards):
    for item in reshards:
        item.collective.bytes += 1


def _durations(editor, program, *reshards):
    for item in reshards:
        item.expected_duration_ns += 1


def _exchanged_durations(editor, program, *reshards):
    parameters, gradients = (item.expected_duration_ns for item in reshards)
    if parameters == gradients:
        raise Inapplicable("passes that hide more of one part than of the other")
    reshards[0].expected_duration_ns, reshards[1].expected_duration_ns = gradients, parameters


def _memory(editor, program, *reshards):
    reshards[0].memory_acquired_bytes = reshards[0].memory_released_bytes = 8


def _highest_stage(editor, program, *reshards):
    if len(program.stages) == 1:
        raise Inapplicable("several stages")
    reshards[1].stage = program.stages[-1]


def _parts_exchanged(editor, program, *reshards):
    reshards[0].part, reshards[1].part = 1, 0


def _update_alone(editor, program, *reshards):
    """OPTIMIZER_STEP does not wait for gradients."""
    program.instructions[-1].deps = []


def _first_forward_alone(editor, program, *reshards):
    """FORWARD does not wait for parameters."""
    for item in program.instructions:
        if editor.op(item) in PASSES:
            item.deps = [dep for dep in item.deps if dep != reshards[0].id]


def _update_bytes(editor, program, *reshards):
    program.instructions[-1].collective.bytes += 8


def _update_duration(editor, program, *reshards):
    program.instructions[-1].expected_duration_ns += 1


def _group_reversed(editor):
    ranks = editor.plan.groups[0].ranks
    if len(ranks) == 1:
        raise Inapplicable("several ranks")
    ranks.reverse()


def _rank_outside(editor):
    if len(editor.plan.groups[0].ranks) == 1:
        raise Inapplicable("several ranks")
    editor.plan.groups[0].ranks.pop()


def _one_more_group(editor):
    editor.plan.groups.append(copy.deepcopy(editor.plan.groups[0]))


def _groups_of_replicas(editor):
    """OPTIMIZER_STEPs of each replica by itself."""
    if len(editor.plan.replicas) == 1:
        raise Inapplicable("several replicas")
    for replica in range(len(editor.plan.replicas)):
        members = [program for program in editor.plan.programs if program.replica == replica]
        for program in members:
            program.instructions[-1].collective.group = len(editor.plan.groups)
        ranks = [program.rank for program in members]
        editor.plan.groups.append(editor.schema.message("CollectiveGroup", {"ranks": ranks}))
    count_collectives(editor.plan)


def _static(editor):
    for program in editor.plan.programs:
        program.static_memory_bytes += 1


def _options(name, value):
    return lambda editor: setattr(editor.plan.options, name, value)


def _weights(change):
    """Of a plan without a validation, whose weights would have to change, too."""

    def apply(editor):
        if editor.plan.validation is not None or len(editor.plan.programs) < 2:
            raise Inapplicable("several ranks, and no validation")
        editor.plan.options.share_weights = change(list(editor.plan.options.share_weights) or [1] * len(editor.plan.programs))

    return apply


def _another_weight(weights):
    return [weights[0] + 1, *weights[1:]]


DAMAGES_TO_SHARES = [
    Damage(name, topics, _on_plans_with_shares(change))
    for name, topics, change in (
        ("no RESHARD of parameters", ["rule 4"], _on_every_rank(_without(0))),
        ("no RESHARD of gradients", ["rule 4"], _on_every_rank(_without(1))),
        ("no RESHARD of gradients on one rank", ["rule 4"], _on_one_rank(_missing)),
        ("the RESHARD of parameters twice", ["structure"], _on_every_rank(_repeated(0, 0))),
        ("the RESHARD of gradients twice", ["structure"], _on_every_rank(_repeated(1, 1))),
        ("a RESHARD of a third part", ["structure"], _on_every_rank(_repeated(1, 2))),
        ("a RESHARD behind another instruction", ["rule 4"], _on_every_rank(_moved_to(0, lambda ops: 1))),
        ("a RESHARD behind the first FORWARD", ["rule 4"], _on_every_rank(_moved_to(0, _behind_first_forward))),
        ("a pass behind the RESHARD of gradients", ["rule 3"], _on_every_rank(_moved_to(1, _before_last_pass))),
        ("parts of RESHARDs exchanged", ["rule 4"], _on_every_rank(_parts_exchanged)),
        ("RESHARD of gradients on the compute stream", ["rule 3"], _on_every_rank(_set_of(1, "stream", 1))),
        ("RESHARD of parameters on the compute stream", ["rule 3"], _on_every_rank(_set_of(0, "stream", 1))),
        ("RESHARD of gradients without deps", ["rule 3"], _on_every_rank(_set_of(1, "deps", []))),
        ("a pass that does not wait for parameters", ["rule 3"], _on_every_rank(_first_forward_alone)),
        ("OPTIMIZER_STEP that does not wait for gradients", ["rule 3"], _on_every_rank(_update_alone)),
        ("RESHARD of a micro-batch", ["rule 4"], _on_every_rank(_set_of(1, "micro_batch", 1))),
        ("RESHARD of a higher stage", ["rule 4"], _on_every_rank(_highest_stage)),
        ("REDUCE_GRADIENTS beside RESHARD", ["rule 4"], _on_every_rank(_reductions)),
        ("REDUCE_GRADIENTS in place of RESHARD", ["rule 4"], _on_every_rank(_reductions_instead)),
        ("bytes of RESHARDs", ["bytes"], _on_every_rank(_bytes)),
        ("bytes of one RESHARD", ["rule 5"], _on_one_rank(_other_bytes)),
        ("duration of RESHARDs", ["durations"], _on_every_rank(_durations)),
        ("duration of one RESHARD", ["durations"], _on_one_rank(_other_duration)),
        ("durations of RESHARDs exchanged", ["durations"], _on_every_rank(_exchanged_durations)),
        ("memory of a RESHARD", ["bytes"], _on_every_rank(_memory)),
        ("bytes of the update", ["bytes"], _on_every_rank(_update_bytes)),
        ("duration of the update", ["durations"], _on_every_rank(_update_duration)),
        ("order of all ranks", ["rule 5"], _group_reversed),
        ("a rank outside of the group of all", ["rule 5"], _rank_outside),
        ("a group too many", ["rule 5"], _one_more_group),
        ("updates of replicas", ["rule 5"], _groups_of_replicas),
        ("static memory with shares", ["bytes"], _static),
        ("optimizer state divided as well", ["origin"], _options("shard_optimizer_state", True)),
        ("another weight of a share", ["bytes"], _weights(_another_weight)),
        ("a weight of a share too many", ["structure"], _weights(lambda weights: weights + [1])),
        ("weights of shares that are all 0", ["structure"], _weights(lambda weights: [0] * len(weights))),
        ("a weight of a share above the largest", ["structure"], _weights(lambda weights: [2**20 + 1] * len(weights))),
        ("options without shares", ["rule 4", "structure"], _options("parameter_shares", False)),
    )
]
