"""Changes to a plan that break the contract in one place, each with the topic under which the reader must report it."""

import copy


class Inapplicable(Exception):
    """The plan has nothing that this damage could change."""


class Damage:
    """One change. `topics`: the reader must report a difference under one of them."""

    def __init__(self, name, topics, change):
        self.name = name
        self.topics = set(topics)
        self._change = change

    def applied_to(self, schema, planned_batch):
        """A damaged copy. Raises Inapplicable."""
        damaged = copy.deepcopy(planned_batch)
        self._change(Editor(schema, damaged))
        return damaged


class Editor:
    """What damages are made of."""

    def __init__(self, schema, planned_batch):
        self.schema = schema
        self.batch = planned_batch.batch
        self.plan = planned_batch.plan

    def find(self, op, accept=lambda item: True):
        """(program, instruction): the last with this op that is accepted."""
        number = self.schema.enums["Op"]["OP_" + op]
        for program in self.plan.programs:
            for item in reversed(program.instructions):
                if item.op == number and accept(item):
                    return program, item
        raise Inapplicable(op)

    def micro_batch(self, layout=None):
        for replica in self.plan.replicas:
            for item in replica.micro_batches:
                if layout is None or self.schema.enum_name("Layout", item.layout) == layout:
                    return item
        raise Inapplicable(layout)

    def remove(self, op, part=0):
        program, item = self.find(op, lambda item: item.part == part)
        self.reorder(program, [other for other in program.instructions if other is not item])

    def swap(self, program, first, second):
        order = list(program.instructions)
        order[first.id], order[second.id] = second, first
        self.reorder(program, order)

    def swap_transfers(self, same_stream):
        """Exchanges the places of two transfers that follow one another on a rank."""
        for program in self.plan.programs:
            transfers = [item for item in program.instructions if item.transfer is not None]
            for first, second in zip(transfers, transfers[1:]):
                if (first.stream == second.stream) == same_stream:
                    self.swap(program, first, second)
                    return
        raise Inapplicable("transfers")

    def op(self, item):
        return self.schema.enum_name("Op", item.op)

    def reorder(self, program, order):
        """Lists instructions in another order, with ids, deps and transfer_ids that name the same ones."""
        new_id = {item.id: position for position, item in enumerate(order)}
        for position, item in enumerate(order):
            item.deps = [new_id[dep] for dep in item.deps if new_id.get(dep, position) < position]
            if self.op(item) == "WAIT":
                item.transfer_id = new_id.get(item.transfer_id, 0)
        for position, item in enumerate(order):
            item.id = position
        program.instructions = order


def _add(op, field, amount=1, accept=lambda item: True):
    def change(editor):
        _, item = editor.find(op, accept)
        setattr(item, field, getattr(item, field) + amount)

    return change


def _add_to_transfer(op, field):
    def change(editor):
        transfer = editor.find(op)[1].transfer
        setattr(transfer, field, getattr(transfer, field) + 1)

    return change


def _add_to_prediction(field, of_bubble=False):
    def change(editor):
        rank = editor.plan.predicted.ranks[-1]
        holder = rank.bubble if of_bubble else rank
        if holder is None:
            raise Inapplicable(field)
        setattr(holder, field, getattr(holder, field) + 1)

    return change


def _drop_deps(op, accept=lambda item: True):
    def change(editor):
        editor.find(op, lambda item: accept(item) and item.deps)[1].deps = []

    return change


def _shape(editor):
    transfer = editor.find("SEND")[1].transfer
    transfer.shape[0] += 1


def _drop_sample(editor):
    editor.micro_batch().samples.pop()


def _repeat_sample(editor):
    item = editor.micro_batch()
    item.samples.append(item.samples[0])


def _recompute(editor):
    for replica in editor.plan.replicas:
        for item in replica.micro_batches:
            for entry, layers in zip(item.recompute, editor.plan.layers_per_stage):
                if entry.full_layers < layers:
                    entry.full_layers += 1
                    entry.selective_layers = max(0, min(entry.selective_layers, layers - entry.full_layers))
                    return
    raise Inapplicable("recompute")


def _drop_all_receive_deps(editor):
    """Every RECV may be posted at once, with no more memory than the order of the program needs."""
    receive = editor.schema.enums["Op"]["OP_RECV"]
    for program, predicted in zip(editor.plan.programs, editor.plan.predicted.ranks):
        program.memory_limit_bytes = predicted.peak_memory_bytes
        for item in program.instructions:
            if item.op == receive:
                item.deps = []


def _lower_limit(editor):
    editor.plan.programs[0].memory_limit_bytes = editor.plan.predicted.ranks[0].peak_memory_bytes - 1


def _swap_passes(editor):
    """A BACKWARD before the FORWARD that it belongs to."""
    split = editor.schema.enums["Op"]["OP_BACKWARD_INPUT"]
    program, forward = editor.find("FORWARD")
    for item in program.instructions:
        if (item.stage, item.micro_batch) == (forward.stage, forward.micro_batch):
            if item.op in (split, editor.schema.enums["Op"]["OP_BACKWARD"]):
                editor.swap(program, forward, item)
                return
    raise Inapplicable("passes")


def _swap_reductions(editor):
    reduce = editor.schema.enums["Op"]["OP_REDUCE_GRADIENTS"]
    for program in editor.plan.programs:
        items = [item for item in program.instructions if item.op == reduce]
        if len(items) > 1 and editor.plan.mesh.data > 1:
            items[0].collective, items[1].collective = items[1].collective, items[0].collective
            return
    raise Inapplicable("reductions")


def _shorten_row(editor):
    editor.micro_batch("PADDED").target_length -= 1


def _cumulative(editor):
    editor.micro_batch("PACKED").target_cu_seqlens[-1] += 1


def _rows(editor):
    item = editor.micro_batch("CONCATENATED")
    item.row_samples[-1] -= 1


def _group(editor):
    for group in editor.plan.groups:
        if len(group.ranks) > 1:
            group.ranks.reverse()
            return
    raise Inapplicable("groups")


def _is_joint(item):
    return item.collective is not None and item.own_duration_ns > 0


def _add_to_exchange(field):
    def change(editor):
        for program in editor.plan.programs:
            for item in program.instructions:
                if item.exchange is not None and getattr(item.exchange, field) > 0:
                    setattr(item.exchange, field, getattr(item.exchange, field) + 1)
                    return
        raise Inapplicable(field)

    return change


def _span(change):
    """Changes the span of a row that is divided."""

    def apply(editor):
        for replica in editor.plan.replicas:
            for item in replica.micro_batches:
                for row, ranks in enumerate(item.span_ranks):
                    if ranks > 1:
                        change(item, row)
                        return
        raise Inapplicable("spans")

    return apply


def _undivided(item, row):
    item.span_ranks[row] = 1


def _unaligned(item, row):
    item.span_first[row] += 1


def _no_power(item, row):
    item.span_ranks[row] = 3


def _no_span(item, row):
    item.span_first.pop()


def _context(plan):
    if plan.mesh.context < 2:
        raise Inapplicable("context")
    plan.mesh.context, plan.mesh.tensor = plan.mesh.context // 2, 2 * (plan.mesh.tensor or 1)


def _swap_places(editor):
    """Two ranks of a stage group change their places in the topology."""
    ranks = editor.plan.topology.replicas[0].stages[0].ranks
    if len(ranks) < 2:
        raise Inapplicable("stage groups")
    for stage in editor.plan.topology.replicas[0].stages:
        if set(stage.ranks) == set(ranks):
            stage.ranks[0], stage.ranks[1] = stage.ranks[1], stage.ranks[0]


def _rank_twice(editor):
    ranks = editor.plan.topology.replicas[0].stages[0].ranks
    if len(ranks) < 2:
        raise Inapplicable("stage groups")
    ranks[1] = ranks[0]


def _other_layout(editor):
    editor.micro_batch("PACKED").rows = 1


def _step_stage(editor):
    def of_several(program):
        return len(program.stages) > 1

    for program in editor.plan.programs:
        if of_several(program):
            program.instructions[-1].stage = max(program.stages)
            return
    raise Inapplicable("stages")


def _micro_batch_size(plan):
    if plan.options.micro_batch_size < 2:
        raise Inapplicable("micro_batch_size")
    plan.options.micro_batch_size = 1


def _token_cap(plan):
    if plan.options.token_cap == 0 or plan.options.policy == 2:
        raise Inapplicable("token_cap")
    plan.options.token_cap = 2


def _topology(editor):
    editor.plan.topology.replicas[0].stages[0].ranks[0] += 1


def _schedule(plan):
    if plan.schedule == 3:  # Of READY_FIRST nothing is asked but what is asked of all.
        raise Inapplicable("schedule")
    plan.schedule = 6 - plan.schedule


def _options(plan):
    plan.options.memory_limit_bytes += 1


def _rank_limit(plan):
    if not plan.options.rank_memory_limits:
        raise Inapplicable("rank_memory_limits")
    plan.options.rank_memory_limits[-1].bytes += 1


def _rank_of_limit(change):
    """Of a plan with limits by rank."""

    def apply(plan):
        if len(plan.options.rank_memory_limits) < 2:
            raise Inapplicable("rank_memory_limits")
        limits = plan.options.rank_memory_limits
        limits[-1].rank = change(limits, plan)

    return apply


def _no_rank_limit(plan):
    if not plan.options.rank_memory_limits:
        raise Inapplicable("rank_memory_limits")
    plan.options.rank_memory_limits[0].bytes = 0


def _set(change):
    return lambda editor: change(editor.plan)


def _hidden(plan):
    plan.model.hidden += 1


def _loss_tokens(plan):
    plan.loss_tokens += 1


def _loss_weight(plan):
    plan.loss_weight += 0.5


def _weight_of_sample(editor):
    editor.batch.samples[0].loss_weight = 0.25


def _negative_weight(editor):
    for sample in editor.batch.samples:
        sample.loss_weight = -1.0
    editor.plan.loss_weight = -1.0 * len(editor.batch.samples)


def _makespan(plan):
    plan.predicted.makespan_ns += 1


def _last_backward(plan):
    plan.predicted.last_backward_ns -= 1


def _bound(plan):
    plan.lower_bound_ns = plan.predicted.makespan_ns + 1


def _job_id(plan):
    plan.job_id += "x"


def _strategy(plan):
    plan.strategy += 64


def _version(plan):
    plan.profile_version += 1


def _static(plan):
    plan.programs[-1].static_memory_bytes += 1


def _stage_list(plan):
    plan.programs[0].stages = [stage + 1 for stage in plan.programs[0].stages]


def _other_buckets(editor):
    """With latencies of their own."""
    if editor.plan.mesh.data * max(1, editor.plan.mesh.context or 1) == 1 or editor.plan.options.parameter_shares:
        raise Inapplicable("nothing is reduced")
    if max(editor.plan.layers_per_stage) == 1 or not 0 < editor.plan.options.gradient_bucket_bytes < 2**20:
        raise Inapplicable("one bucket")
    editor.plan.options.gradient_bucket_bytes = 2**40


def _too_large_buckets(plan):
    plan.options.gradient_bucket_bytes = 2**40 + 1


def _is_part(part):
    return lambda item: item.part == part


def _put_off(collective):
    collective.sequence += 1


DAMAGES = [
    *(Damage(f"duration of {op}", ["durations"], _add(op, "expected_duration_ns")) for op in (
        "LOAD", "FORWARD", "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT", "SEND", "RECV", "WAIT", "REDUCE_GRADIENTS", "OPTIMIZER_STEP")),
    *(Damage(f"start of {op}", ["start times"], _add(op, "expected_start_ns")) for op in (
        "FORWARD", "SEND", "RECV", "WAIT", "FREE", "REDUCE_GRADIENTS", "OPTIMIZER_STEP")),
    *(Damage(f"bytes that {op} takes", ["bytes"], _add(op, "memory_acquired_bytes")) for op in (
        "LOAD", "FORWARD", "RECV", "BACKWARD", "BACKWARD_INPUT", "SEND")),
    *(Damage(f"bytes that {op} gives back", ["bytes"], _add(op, "memory_released_bytes", -1, lambda item: item.memory_released_bytes > 0))
      for op in ("FREE", "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT")),
    Damage("bytes that are given back twice", ["rule 6"], _add("FREE", "memory_released_bytes", 1000)),
    Damage("bytes that stay", ["rule 6"], _add("FREE", "memory_released_bytes", -1, lambda item: item.memory_released_bytes > 0)),
    Damage("static memory", ["bytes"], _set(_static)),
    Damage("memory limit below the peak", ["rule 6"], _lower_limit),
    Damage("RECVs without deps", ["rule 6"], _drop_all_receive_deps),
    Damage("SEND without deps", ["rule 3"], _drop_deps("SEND")),
    Damage("WAIT without deps", ["rule 3"], _drop_deps("WAIT", _is_part(0))),
    Damage("REDUCE_GRADIENTS without deps", ["rule 3"], _drop_deps("REDUCE_GRADIENTS")),
    Damage("OPTIMIZER_STEP without deps", ["rule 3"], _drop_deps("OPTIMIZER_STEP")),
    Damage("a dep on a later instruction", ["rule 3"], lambda editor: editor.find("LOAD")[1].deps.append(10**6)),
    Damage("a stream", ["rule 3"], _add("SEND", "stream")),
    Damage("a WAIT for another transfer", ["rule 3", "structure"], _add("WAIT", "transfer_id", -1, lambda item: item.transfer_id > 0)),
    Damage("a transfer_id of no WAIT", ["structure"], _add("SEND", "transfer_id")),
    Damage("backward before forward", ["rule 3", "structure"], _swap_passes),
    Damage("two transfers of one link swapped", ["rule 2"], lambda editor: editor.swap_transfers(True)),
    Damage("two transfers of two links swapped", ["rule 2"], lambda editor: editor.swap_transfers(False)),
    Damage("shape at one end", ["shapes"], _shape),
    Damage("transferred bytes", ["shapes"], _add_to_transfer("RECV", "bytes")),
    *(Damage(f"{field} of a transfer", ["rule 2"], _add_to_transfer("SEND", field)) for field in ("sequence", "order", "kind", "dtype")),
    *(Damage(f"no {op} {part}", ["rule 4", "rule 2", "structure"], lambda editor, op=op, part=part: editor.remove(op, part)) for op, part in (
        ("LOAD", 0), ("FORWARD", 0), ("BACKWARD", 0), ("BACKWARD_WEIGHT", 0), ("SEND", 0), ("RECV", 1), ("FREE", 0), ("FREE", 1), ("FREE", 2),
        ("REDUCE_GRADIENTS", 0), ("OPTIMIZER_STEP", 0))),
    Damage("a sample twice", ["rule 1"], _repeat_sample),
    Damage("a sample lost", ["rule 1"], _drop_sample),
    Damage("a row too short", ["rule 7"], _shorten_row),
    Damage("cumulative lengths", ["rule 7"], _cumulative),
    Damage("samples of rows", ["rule 7"], _rows),
    Damage("loss tokens", ["rule 7"], _set(_loss_tokens)),
    Damage("loss weight", ["rule 7"], _set(_loss_weight)),
    Damage("weight of a sample", ["rule 7"], _weight_of_sample),
    Damage("weights below 0", ["rule 7"], _negative_weight),
    Damage("recompute", ["durations", "bytes"], _recompute),
    Damage("order of a group", ["rule 5"], _group),
    Damage("two reductions exchanged", ["rule 5"], _swap_reductions),
    Damage("bytes of a collective", ["bytes"], lambda editor: setattr(editor.find("OPTIMIZER_STEP")[1].collective, "bytes", 9)),
    Damage("sequence of a collective", ["rule 5"], lambda editor: setattr(editor.find("REDUCE_GRADIENTS")[1].collective, "sequence", 5)),
    Damage("topology", ["topology"], _topology),
    Damage("a rank twice in a stage group", ["topology"], _rank_twice),
    Damage("two places of a stage group exchanged", ["rule 5", "origin"], _swap_places),
    Damage("other degrees of the same product", ["rule 5", "rule 7", "shapes", "structure"], _set(_context)),
    Damage("own duration", ["durations"], _add("FORWARD", "own_duration_ns", -1, _is_joint)),
    Damage("own duration of a rank alone", ["structure"], _add("FORWARD", "own_duration_ns", 1, lambda item: item.collective is None)),
    *(Damage(f"exchange: {name}", ["exchange"], _add_to_exchange(name)) for name in (
        "tensor_bytes", "tensor_ns", "context_sent_bytes", "context_received_bytes", "context_ns", "context_exposed_ns", "expert_bytes", "expert_ns")),
    Damage("sequence of a joint pass", ["rule 5"], lambda editor: _put_off(editor.find("FORWARD", _is_joint)[1].collective)),
    Damage("bytes of a joint pass", ["bytes"], lambda editor: setattr(editor.find("BACKWARD", _is_joint)[1].collective, "bytes", 8)),
    Damage("a divided row on one rank", ["shapes", "durations", "bytes"], _span(_undivided)),
    Damage("a span between", ["rule 7"], _span(_unaligned)),
    Damage("a span of three", ["rule 7"], _span(_no_power)),
    Damage("a span too few", ["rule 7"], _span(_no_span)),
    Damage("a field of another layout", ["rule 7"], _other_layout),
    Damage("optimizer step of a higher stage", ["rule 4"], _step_stage),
    Damage("size of micro-batches in the options", ["origin"], _set(_micro_batch_size)),
    Damage("tokens of micro-batches in the options", ["origin"], _set(_token_cap)),
    Damage("gradients in other buckets", ["durations"], _other_buckets),
    Damage("buckets that are too large", ["structure"], _set(_too_large_buckets)),
    Damage("stages of a rank", ["structure"], _set(_stage_list)),
    Damage("makespan", ["predictions"], _set(_makespan)),
    Damage("last backward", ["predictions"], _set(_last_backward)),
    Damage("bound above the makespan", ["predictions"], _set(_bound)),
    Damage("busy time", ["predictions"], _add_to_prediction("busy_ns")),
    *(Damage(field, ["predictions"], _add_to_prediction(field, of_bubble=True)) for field in (
        "fill_ns", "drain_ns", "dependency_ns", "transfer_ns", "imbalance_ns", "memory_ns", "group_ns")),
    Damage("peak memory", ["peak memory"], _add_to_prediction("peak_memory_bytes")),
    Damage("peak instruction", ["peak memory"], _add_to_prediction("peak_instruction")),
    Damage("name of the job", ["content hash"], _set(_job_id)),
    Damage("strategy", ["structure"], _set(_strategy)),
    Damage("schedule", ["rule 4"], _set(_schedule)),
    Damage("limit of the options", ["origin"], _set(_options)),
    Damage("limit of a rank", ["origin"], _set(_rank_limit)),
    Damage("a limit of a rank twice", ["structure"], _set(_rank_of_limit(lambda limits, _: limits[0].rank))),
    Damage("a limit of a rank that there is not", ["structure"], _set(_rank_of_limit(lambda _, plan: len(plan.programs)))),
    Damage("a rank without memory", ["structure"], _set(_no_rank_limit)),
    Damage("model", ["origin"], _set(_hidden)),
    Damage("profile version", ["origin"], _set(_version)),
]
