"""Rule 0: sizes, ranges and unique keys, without which nothing else can be asked of a plan."""

from meshes import placed_meshes
from reading import PASSES

TOPIC = "structure"
MOST_STRATEGIES = 64
MOST_SHARE_WEIGHT = 2**20


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
    if not _check_topology(schema, plan, report):
        return False
    _check_stages(schema, plan, report)
    for placed in placed_meshes(plan):
        for replica in placed.replicas:
            for index, micro_batch in enumerate(plan.replicas[replica].micro_batches):
                place = f"replica {replica}, micro-batch {index}"
                _check_micro_batch(schema, placed, len(planned_batch.batch.samples), place, micro_batch, report)
                again = any(entry.full_layers + entry.selective_layers for entry in micro_batch.recompute)
                report.require(TOPIC, place, not (plan.forward_only and again), "layers are recomputed without a pass back")
        for rank in placed.ranks:
            _check_program(schema, plan, placed, rank, report)
    return len(report.differences) == before


def _check_sizes(schema, plan, report):
    for name in ("model", "mesh", "predicted"):
        report.require(TOPIC, "plan", getattr(plan, name) is not None, f"{name} is missing")
    if plan.model is None or plan.mesh is None or plan.predicted is None:
        return
    architecture = schema.enum_name("Architecture", plan.model.architecture)
    report.require(TOPIC, "model", architecture in ("GPT", "T5"), f"architecture is {architecture}")
    if plan.meshes and not _check_several_meshes(plan, report):
        return
    meshes = placed_meshes(plan)
    for placed in meshes:
        _check_degrees(plan.model, architecture, placed, report)
    ranks = sum(placed.rank_count for placed in meshes)
    report.compare(TOPIC, "plan", "number of programs", len(plan.programs), ranks)
    report.compare(TOPIC, "plan", "number of replicas", len(plan.replicas), sum(placed.mesh.data for placed in meshes))
    report.compare(TOPIC, "plan", "number of rank predictions", len(plan.predicted.ranks), ranks)


def _check_several_meshes(plan, report):
    """Returns whether they can be looked at one by one."""
    named = all(item.mesh is not None for item in plan.meshes)
    report.require(TOPIC, "plan", named, "one of meshes has no mesh")
    report.require(TOPIC, "plan", len(plan.meshes) > 1, "meshes has one mesh")
    shares = plan.options is not None and plan.options.parameter_shares
    report.require(TOPIC, "options", shares, "there are several meshes without parameter_shares")
    first = plan.meshes[0]
    report.compare(TOPIC, "plan", "mesh", plan.mesh, first.mesh)
    report.compare(TOPIC, "plan", "layers_per_stage", plan.layers_per_stage, first.layers_per_stage)
    return named


def _check_degrees(model, architecture, placed, report):
    """Those of a mesh divide the model as they may."""
    contexts, tensors, expert = placed.contexts, placed.tensors, placed.experts
    report.require(TOPIC, placed.name, placed.rank_count > 0, "there is no rank")
    sound = contexts & (contexts - 1) == 0 and contexts <= 1024 and (contexts == 1 or architecture == "GPT")
    report.require(TOPIC, placed.name, sound, f"there are {contexts} context ranks")
    shared = model.key_value_heads or model.heads
    divides = tensors == 1 or (model.heads % tensors == 0 and model.ffn % tensors == 0 and shared > 0)
    divides = divides and (tensors == 1 or shared % tensors == 0 or tensors % shared == 0)
    divides = divides and model.shared_expert_ffn % tensors == 0 and model.dense_ffn % tensors == 0
    report.require(TOPIC, placed.name, tensors <= 64 and divides, f"there are {tensors} tensor ranks")
    divides = expert == 1 or (model.experts > 0 and model.experts % expert == 0)
    divides = divides and (expert == 1 or (expert % tensors == 0 and contexts * tensors % expert == 0))
    report.require(TOPIC, placed.name, divides, f"{expert} ranks divide the experts")


def _check_stages(schema, plan, report):
    model = plan.model
    is_t5 = schema.enum_name("Architecture", model.architecture) == "T5"
    layers = model.encoder_layers + model.decoder_layers if is_t5 else model.layers
    others = model.layers if is_t5 else model.encoder_layers + model.decoder_layers
    report.compare(TOPIC, "model", "layers of another architecture", others, 0)
    dense = list(model.dense_layers)
    sound = dense == sorted(set(dense)) and (not dense or (model.experts > 0 and 1 <= dense[0] and dense[-1] <= layers))
    report.require(TOPIC, "model", sound, f"dense_layers are {dense}")
    report.require(TOPIC, "plan", plan.planning_time_ns >= 0, "planning_time_ns is negative")
    report.require(TOPIC, "plan", plan.predicted is None or plan.predicted.expected_ns >= 0, "predicted.expected_ns is negative")
    # Jobs have strategies with parameter_shares only, and at most so many.
    shares = plan.options is not None and plan.options.parameter_shares
    possible = plan.strategy < (MOST_STRATEGIES if shares else 1)
    report.require(TOPIC, "plan", possible, f"no job has a strategy {plan.strategy} {'with' if shares else 'without'} parameter_shares")
    _check_share_weights(plan, shares, report)
    _check_rank_memory(plan, report)
    typical = plan.options.typical_samples if plan.options is not None else []
    report.compare(TOPIC, "options", "typical_samples", len(typical), 0)
    for placed in placed_meshes(plan):
        report.compare(TOPIC, placed.name, "sum of layers_per_stage", sum(placed.layers_per_stage), layers)
        report.require(TOPIC, placed.name, all(count > 0 for count in placed.layers_per_stage), "a stage has no layer")
    for rank, program in enumerate(plan.programs):
        place = f"rank {rank}"
        report.compare(TOPIC, place, "rank", program.rank, rank)
        holds = [
            (replica, stage)
            for replica, stages in enumerate(plan.topology.replicas)
            for stage, message in enumerate(stages.stages)
            if rank in message.ranks
        ]
        report.compare(TOPIC, place, "replica", {program.replica}, {replica for replica, _ in holds})
        report.compare(TOPIC, place, "stages", program.stages, [stage for _, stage in holds])


def _check_share_weights(plan, shares, report):
    weights = plan.options.share_weights if plan.options is not None else []
    if not weights:
        return
    report.require(TOPIC, "options", shares, "there are share_weights without parameter_shares")
    report.compare(TOPIC, "options", "number of share_weights", len(weights), len(plan.programs))
    report.require(TOPIC, "options", 0 < max(weights) <= MOST_SHARE_WEIGHT, f"the largest of share_weights is {max(weights)}")


def _check_rank_memory(plan, report):
    limits = plan.options.rank_memory_limits if plan.options is not None else []
    ranks = [limit.rank for limit in limits]
    sound = ranks == sorted(set(ranks)) and all(rank < len(plan.programs) for rank in ranks)
    report.require(TOPIC, "options", sound, f"rank_memory_limits are of the ranks {ranks}")
    report.require(TOPIC, "options", all(limit.bytes > 0 for limit in limits), "one of rank_memory_limits is not above 0")


def _check_topology(schema, plan, report):
    """Every layer once in every replica, every rank in one stage group of its mesh. Returns whether ranks can be looked up."""
    before = len(report.differences)
    replicas = plan.topology.replicas if plan.topology is not None else []
    report.compare("topology", "plan", "number of replicas in the topology", len(replicas), len(plan.replicas))
    if len(replicas) != len(plan.replicas):
        return False
    is_t5 = schema.enum_name("Architecture", plan.model.architecture) == "T5"
    encoders = plan.model.encoder_layers if is_t5 else 0
    for placed in placed_meshes(plan):
        _check_topology_of_mesh(placed, replicas[placed.replicas.start : placed.replicas.stop], encoders, report)
    return len(report.differences) == before


def _check_topology_of_mesh(placed, replicas, encoders, report):
    seen = []
    for replica, message in zip(placed.replicas, replicas):
        groups = {tuple(stage.ranks) for stage in message.stages}
        report.compare("topology", f"replica {replica}", "number of stage groups", len(groups), placed.mesh.pipeline)
        for group in groups:
            report.compare("topology", f"replica {replica}", "size of a stage group", len(group), placed.group_size)
            seen += group
        first, stated, expected = 0, [], []
        for layers in placed.layers_per_stage:
            held = max(0, min(first + layers, encoders) - first)
            expected.append((held, layers - held))
            first += layers
        stated = [(stage.encoder_layers, stage.decoder_layers) for stage in message.stages]
        report.compare("topology", f"replica {replica}", "layers", stated, expected)
    partitions = [[[stage.ranks for stage in message.stages].index(own.ranks) for own in message.stages] for message in replicas]
    alike = all(partition == partitions[0] for partition in partitions)
    report.require("topology", placed.name, alike, "other stages are together in some replicas")
    report.compare("topology", placed.name, "ranks of all stage groups", sorted(seen), list(placed.ranks))


def _check_micro_batch(schema, placed, samples, place, micro_batch, report):
    layout = schema.enum_name("Layout", micro_batch.layout)
    report.require(TOPIC, place, layout in ("PADDED", "PACKED", "CONCATENATED"), f"layout is {layout}")
    report.require(TOPIC, place, all(index < samples for index in micro_batch.samples), "a sample is out of range")
    report.compare(TOPIC, place, "number of recompute entries", len(micro_batch.recompute), len(placed.layers_per_stage))
    for entry, layers in zip(micro_batch.recompute, placed.layers_per_stage):
        fits = entry.full_layers + entry.selective_layers <= layers
        report.require(TOPIC, place, fits, "more layers are recomputed than the stage has")


def _check_program(schema, plan, placed, rank, report):
    program = plan.programs[rank]
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
        of_batch = op in ("REDUCE_GRADIENTS", "RESHARD", "OPTIMIZER_STEP")
        is_joint = op in PASSES and placed.group_size > 1
        report.require(TOPIC, place, of_batch or item.micro_batch < micro_batches, "its micro-batch does not exist")
        report.require(TOPIC, place, item.part <= {"FREE": 2, "RESHARD": 1}.get(op, item.part), f"part is {item.part}")
        amounts = (item.memory_acquired_bytes, item.memory_released_bytes, item.expected_start_ns, item.expected_duration_ns)
        amounts += (item.own_duration_ns,)
        report.require(TOPIC, place, min(amounts) >= 0, "a time or number of bytes is negative")
        report.compare(TOPIC, place, "having a transfer", item.transfer is not None, op in ("SEND", "RECV"))
        report.compare(TOPIC, place, "having a collective", item.collective is not None, of_batch or is_joint)
        report.require(TOPIC, place, is_joint or (item.own_duration_ns == 0 and item.exchange is None), "it is no joint pass")
        if item.transfer is not None:
            report.require(TOPIC, place, item.transfer.peer < len(plan.programs), "its peer does not exist")
        if item.collective is not None:
            report.require(TOPIC, place, item.collective.group < len(plan.groups), "its group does not exist")
        report.require(TOPIC, place, op == "WAIT" or item.transfer_id == 0, "it is no WAIT and has a transfer_id")
        if op == "WAIT":
            names_transfer = item.transfer_id < position and schema.enum_name(
                "Op", program.instructions[item.transfer_id].op
            ) in ("SEND", "RECV")
            report.require(TOPIC, place, names_transfer, "it waits for no earlier transfer")
