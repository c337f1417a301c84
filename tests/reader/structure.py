"""Rule 0: sizes, ranges and unique keys, without which nothing else can be asked of a plan."""

TOPIC = "structure"


def check_structure(schema, planned_batch, report):
    """Returns whether the plan can be read further."""
    if planned_batch.batch is None or planned_batch.plan is None:
        report.require(TOPIC, "file", False, "batch or plan is missing")
        return False
    plan = planned_batch.plan
    before = len(report.differences)
    _check_sizes(schema, plan, report)
    if len(report.differences) > before:
        return False
    _check_stages(plan, report)
    for replica, messages in enumerate(plan.replicas):
        for index, micro_batch in enumerate(messages.micro_batches):
            _check_micro_batch(schema, plan, len(planned_batch.batch.samples), f"replica {replica}, micro-batch {index}", micro_batch, report)
    for rank, program in enumerate(plan.programs):
        _check_program(schema, plan, rank, program, report)
    return len(report.differences) == before


def _check_sizes(schema, plan, report):
    for name in ("model", "mesh", "predicted"):
        report.require(TOPIC, "plan", getattr(plan, name) is not None, f"{name} is missing")
    if plan.model is None or plan.mesh is None or plan.predicted is None:
        return
    architecture = schema.enum_name("Architecture", plan.model.architecture)
    report.require(TOPIC, "model", architecture in ("GPT", "T5"), f"architecture is {architecture}")
    ranks = plan.mesh.pipeline * plan.mesh.data
    report.require(TOPIC, "mesh", ranks > 0 and plan.mesh.tensor <= 1 and plan.mesh.context <= 1, "degrees are wrong")
    report.compare(TOPIC, "plan", "number of programs", len(plan.programs), ranks)
    report.compare(TOPIC, "plan", "number of replicas", len(plan.replicas), plan.mesh.data)
    report.compare(TOPIC, "plan", "number of rank predictions", len(plan.predicted.ranks), ranks)


def _check_stages(plan, report):
    model = plan.model
    layers = model.layers if model.layers else model.encoder_layers + model.decoder_layers
    report.compare(TOPIC, "plan", "sum of layers_per_stage", sum(plan.layers_per_stage), layers)
    report.require(TOPIC, "plan", all(count > 0 for count in plan.layers_per_stage), "a stage has no layer")
    for rank, program in enumerate(plan.programs):
        place = f"rank {rank}"
        report.compare(TOPIC, place, "rank", program.rank, rank)
        report.compare(TOPIC, place, "replica", program.replica, rank // plan.mesh.pipeline)
        report.compare(TOPIC, place, "stages", program.stages, sorted(set(program.stages)))
        report.compare(TOPIC, place, "stages", program.stages, plan.programs[rank % plan.mesh.pipeline].stages)
    for replica in range(plan.mesh.data):
        programs = plan.programs[replica * plan.mesh.pipeline : (replica + 1) * plan.mesh.pipeline]
        held = sorted(stage for program in programs for stage in program.stages)
        report.compare(TOPIC, f"replica {replica}", "stages", held, list(range(len(plan.layers_per_stage))))


def _check_micro_batch(schema, plan, samples, place, micro_batch, report):
    layout = schema.enum_name("Layout", micro_batch.layout)
    report.require(TOPIC, place, layout in ("PADDED", "PACKED", "CONCATENATED"), f"layout is {layout}")
    report.require(TOPIC, place, all(index < samples for index in micro_batch.samples), "a sample is out of range")
    report.compare(TOPIC, place, "number of recompute entries", len(micro_batch.recompute), len(plan.layers_per_stage))
    for entry, layers in zip(micro_batch.recompute, plan.layers_per_stage):
        fits = entry.full_layers + entry.selective_layers <= layers
        report.require(TOPIC, place, fits, "more layers are recomputed than the stage has")


def _check_program(schema, plan, rank, program, report):
    micro_batches = len(plan.replicas[program.replica].micro_batches) if program.replica < len(plan.replicas) else 0
    keys = set()
    for position, item in enumerate(program.instructions):
        op = schema.enum_name("Op", item.op)
        place = f"rank {rank}, instruction {position} ({op})"
        report.compare(TOPIC, place, "id", item.id, position)
        key = (item.op, item.stage, item.micro_batch, item.part)
        report.require(TOPIC, place, key not in keys, "its key is not unique")
        keys.add(key)
        # Section 3 says of the deps that they name earlier instructions (rule 3).
        report.require("rule 3", place, all(dep < position for dep in item.deps), "deps name no earlier instruction")
        report.require(TOPIC, place, item.stage in program.stages, f"stage {item.stage} is not on this rank")
        is_collective = op in ("REDUCE_GRADIENTS", "OPTIMIZER_STEP")
        report.require(TOPIC, place, is_collective or item.micro_batch < micro_batches, "its micro-batch does not exist")
        report.require(TOPIC, place, op != "FREE" or item.part <= 2, f"part is {item.part}")
        amounts = (item.memory_acquired_bytes, item.memory_released_bytes, item.expected_start_ns, item.expected_duration_ns)
        report.require(TOPIC, place, min(amounts) >= 0, "a time or number of bytes is negative")
        report.compare(TOPIC, place, "having a transfer", item.transfer is not None, op in ("SEND", "RECV"))
        report.compare(TOPIC, place, "having a collective", item.collective is not None, is_collective)
        if item.transfer is not None:
            report.require(TOPIC, place, item.transfer.peer < len(plan.programs), "its peer does not exist")
        if item.collective is not None:
            report.require(TOPIC, place, item.collective.group < len(plan.groups), "its group does not exist")
        if op == "WAIT":
            names_transfer = item.transfer_id < position and schema.enum_name(
                "Op", program.instructions[item.transfer_id].op
            ) in ("SEND", "RECV")
            report.require(TOPIC, place, names_transfer, "it waits for no earlier transfer")
