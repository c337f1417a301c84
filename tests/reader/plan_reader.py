"""Judges a plan by the contract alone: proto/penstock/v1, its messages and execution.md.

`read_plan` recomputes from batch, model, mesh and cost profile all that follows from what the planner decided (which samples
share a micro-batch, in which order instructions are listed, what is recomputed), and compares it with what the plan states.
"""

import hashlib
from types import SimpleNamespace

import habits
import rules
from durations import fixed_step, optimizer_duration, rank_parameter_bytes
from exchange import NAMES, PassExchange
from execution import times
from memory import largest_account, static_bytes, static_bytes_with_share
from parts import check_most_parts
from pass_bytes import PassBytes
from pass_costs import PassCosts
from predictions import Predictor
from reading import PASSES, Reading
from reductions import reduce_durations
from report import Report
from structure import check_structure
from token_sums import side_lengths
from world_costs import WorldCosts

PLAN_FILE = "penstock/v1/plan.proto"
DEFAULT_POSITION_BUCKETS = 32
NORM_BYTES = 8
MOST_BUCKET_BYTES = 2**40


def read_plan(schema, planned_batch, profile_file, check_habits=False):
    """Returns the Report of a plan. `check_habits`: also what execution.md says of Penstock's own planner. Raises NoCost."""
    report = Report()
    if _read_passes(schema, planned_batch, profile_file, check_habits, report):
        _read_validation(schema, planned_batch, profile_file, check_habits, report)
    return report


def _read_validation(schema, planned_batch, profile_file, check_habits, report):
    """The plan of a batch's validation (section 16)."""
    plan, batch = planned_batch.plan, planned_batch.batch
    report.require("validation", "plan", not plan.forward_only, "forward_only is set")
    report.compare("validation", "plan", "having a validation", plan.validation is not None, batch.validation is not None)
    if plan.validation is None or batch.validation is None:
        return
    of, samples = plan.validation, batch.validation
    for what, holds in (("forward_only", of.forward_only), ("no validation", of.validation is None and samples.validation is None), ("one mesh", not of.meshes)):
        report.require("validation", "validation", holds, f"it has not {what}")
    for name in ("job_id", "iteration", "plan_version", "profile_version", "model"):
        report.compare("validation", "validation", name, getattr(of, name), getattr(plan, name))
    report.compare("validation", "batch", "iteration", samples.iteration, batch.iteration)
    shares = [item.options is not None and item.options.parameter_shares for item in (of, plan)]
    report.compare("validation", "validation", "parameter_shares", *shares)
    weights = [list(item.options.share_weights) if item.options is not None else [] for item in (of, plan)]
    report.compare("validation", "validation", "share_weights", *weights)
    if of.strategy == plan.strategy:
        report.compare("validation", "validation", "topology", of.topology, plan.topology)
    own = Report()
    _read_passes(schema, SimpleNamespace(batch=samples, plan=of), profile_file, check_habits, own)
    report.agreed.update(own.agreed)
    report.differences += [(topic, f"validation, {place}", text) for topic, place, text in own.differences]


def _read_passes(schema, planned_batch, profile_file, check_habits, report):
    """A plan without its validation. Returns whether its structure holds."""
    if not check_structure(schema, planned_batch, report):
        return False
    reading = Reading(schema, planned_batch)
    world_costs = WorldCosts(reading, profile_file.profile)
    _check_origin(reading, profile_file, report)
    rules.check_samples(reading, report)
    rules.check_tokens(reading, report)
    rules.check_contents(reading, report)
    rules.check_schedule(reading, report)
    rules.check_collectives(reading, lambda rank, item: _collective_bytes(reading, world_costs, rank, item), report)
    rules.check_memory(reading, report)
    durations, own = _check_durations(reading, world_costs, report)
    _check_bytes(reading, world_costs, report)
    met = rules.check_transfers(reading, report)
    if met is not None:
        _check_times(reading, *met, durations, own, report)
    _check_peaks(reading, report)
    _check_hash(reading, report)
    if check_habits:
        habits.check(reading, report)
    return True


def _check_origin(reading, profile_file, report):
    """The plan was made for this model and this profile, with its own options."""
    report.compare("origin", "plan", "model", reading.plan.model, profile_file.model)
    report.compare("origin", "plan", "profile_version", reading.plan.profile_version, profile_file.profile.version)
    options = reading.options
    first_mesh = reading.world.pipelines[0].placed
    report.compare("origin", "options", "layers_per_stage", options.layers_per_stage, first_mesh.layers_per_stage)
    positions = options.rank_of_stage or list(range(len(options.layers_per_stage)))
    report.compare("origin", "options", "positions of stages", positions, first_mesh.positions)
    for pipeline in reading.world.pipelines:
        _check_places(pipeline, report)
    _check_options(reading, report)
    check_most_parts(reading, report)
    limit = options.memory_limit_bytes or profile_file.profile.cluster.memory_bytes
    own = {named.rank: named.bytes for named in options.rank_memory_limits}
    for rank, program in enumerate(reading.programs):
        report.compare("origin", f"rank {rank}", "memory_limit_bytes", program.memory_limit_bytes, own.get(rank, limit))


def _check_places(pipeline, report):
    """The ranks of a mesh are numbered as this planner's, from its first one on."""
    placed = pipeline.placed
    report.compare("origin", placed.name, "number of positions", len(placed.positions), len(pipeline.stages))
    for number, replica in enumerate(pipeline.replicas):
        for stage, position in zip(pipeline.stages, placed.positions):
            first = placed.first_rank + (number * pipeline.length + position) * pipeline.group_size
            ranks = list(range(first, first + pipeline.group_size))
            report.compare("origin", f"replica {replica}, stage {stage.index}", "ranks", pipeline.ranks_of_group(replica, stage), ranks)


def _check_options(reading, report):
    """The plan is one that its options allow (section 12)."""
    schema, options = reading.schema, reading.options
    both = options.shard_optimizer_state and options.parameter_shares
    report.require("origin", "options", not both, "shard_optimizer_state and parameter_shares")
    both = options.gradient_bucket_bytes and options.parameter_shares
    report.require("structure", "options", not both, "gradient_bucket_bytes and parameter_shares")
    report.require("structure", "options", options.gradient_bucket_bytes <= MOST_BUCKET_BYTES, f"gradient_bucket_bytes is {options.gradient_bucket_bytes}")
    allowed = schema.enum_name("Schedule", options.schedule)
    stated = schema.enum_name("Schedule", reading.plan.schedule)
    families = {
        "ONE_FORWARD_ONE_BACKWARD": {"ONE_FORWARD_ONE_BACKWARD"},
        "READY_FIRST": {"READY_FIRST"},
        "SPLIT_BACKWARD": {"SPLIT_BACKWARD", "READY_FIRST"},
        "INTERLEAVED": {"READY_FIRST"},
    }
    # Forward passes alone are of no family.
    holds = reading.forward_only or allowed not in families or stated in families[allowed] | {"INTERLEAVED"}
    report.require("origin", "options", holds, f"schedule {allowed} excludes {stated}")
    policy, choice = schema.enum_name("Policy", options.policy), schema.enum_name("LayoutChoice", options.layout)
    layouts = {"PADDING": {"PADDED"}, "CONCATENATED": {"CONCATENATED"}, "PACKED": {"PACKED"}, "TOKEN_BUDGET": {"PACKED"}}
    dynamic = {choice} if choice in ("PADDED", "PACKED") else {"PADDED", "PACKED"}
    sides = [side_lengths(reading.is_t5, sample) for sample in reading.samples]
    longest = sum(max(side) for side in zip(*sides)) if sides else 0
    for replica, messages in enumerate(reading.plan.replicas):
        for index, item in enumerate(messages.micro_batches):
            place = f"replica {replica}, micro-batch {index}"
            layout = reading.layout(item)
            report.require("origin", place, layout in layouts.get(policy, dynamic), f"policy {policy} makes no {layout}")
            size = {"PADDING": len(item.samples), "CONCATENATED": item.rows}.get(policy, 0)
            holds = options.micro_batch_size == 0 or size <= options.micro_batch_size
            report.require("origin", place, holds, f"micro_batch_size is {options.micro_batch_size}")
            tokens, most = 0, options.token_cap
            if policy in ("PACKED", "TOKEN_BUDGET") and len(item.samples) > 1:
                tokens = item.computed_tokens
            if policy == "CONCATENATED":
                tokens, most = item.source_length + item.target_length, max(most, longest)
            report.require("origin", place, options.token_cap == 0 or tokens <= most, f"token_cap is {options.token_cap}")


def _collective_bytes(reading, world_costs, rank, item):
    pipeline = reading.pipeline_of(rank)
    if reading.op(item) == "REDUCE_GRADIENTS":
        return rank_parameter_bytes(world_costs.of_rank(rank).costs, pipeline.stages[item.stage])
    if reading.op(item) in PASSES:
        return 0
    if reading.op(item) == "RESHARD":
        return world_costs.reshard_bytes
    if reading.world.parameter_shares or reading.plan.model.adapters is not None:
        return NORM_BYTES
    model = reading.plan.model
    element = 8 if reading.dtype == "FLOAT64" else 4
    buckets = model.relative_position_buckets or DEFAULT_POSITION_BUCKETS
    shared = sum(pipeline.stages_with(kind) > 1 for kind in ("encoder", "decoder")) if reading.is_t5 else 0
    tied = element * model.vocab * model.hidden if sum(stage.tied_uses > 0 for stage in pipeline.stages) > 1 else 0
    return NORM_BYTES + shared * element * buckets * model.heads + tied


def _check_durations(reading, world_costs, report):
    """Returns the recomputed durations, and what instructions would take on their ranks alone, both [rank][id]."""
    durations = [[0] * len(program.instructions) for program in reading.programs]
    own = [[0] * len(program.instructions) for program in reading.programs]
    pass_costs, reductions = PassCosts(reading, world_costs), reduce_durations(reading, world_costs)
    for rank, item in reading.instructions():
        op, place = reading.op(item), reading.place(rank, item)
        duration = alone = 0
        if op in PASSES:
            cost = pass_costs.of(rank, item)
            alone, duration = cost.own_ns, cost.expected_ns
            if reading.is_joint(rank, item):
                report.compare("durations", place, "own_duration_ns", item.own_duration_ns, alone)
                _compare_exchange(item, cost.exchange, place, report)
        elif item.transfer is not None:
            ends = (rank, item.transfer.peer) if op == "SEND" else (item.transfer.peer, rank)
            duration = alone = world_costs.of_rank(rank).costs.transfer_ns(item.transfer.bytes, *ends)
        else:
            duration = alone = _update_duration(reading, world_costs, reductions, rank, item)
        durations[rank][item.id], own[rank][item.id] = duration, alone
        report.compare("durations", place, "expected_duration_ns", item.expected_duration_ns, duration)
    return durations, own


def _update_duration(reading, world_costs, reductions, rank, item):
    """What it takes to sum gradients, to update parameters and to bring both to and from shares; of all others nothing."""
    of_mesh, op = world_costs.of_rank(rank), reading.op(item)
    costs, pipeline = of_mesh.costs, of_mesh.pipeline
    if op == "RESHARD":
        return world_costs.parameters_duration if item.part == 0 else world_costs.gradients_duration
    if op == "REDUCE_GRADIENTS":
        return reductions.get((item.stage, pipeline.tensor(rank)), 0)
    if op != "OPTIMIZER_STEP":
        return 0
    if reading.world.parameter_shares:
        return world_costs.share_duration(rank)
    updates = (optimizer_duration(costs, held, pipeline, pipeline.tensor(rank), reading.options) for held in pipeline.stages_of(rank))
    return fixed_step(costs.profile) + sum(updates)


def _compare_exchange(item, expected, place, report):
    stated = item.exchange or PassExchange()
    report.compare("exchange", place, "having an exchange", item.exchange is not None, not expected.is_empty)
    for name in NAMES:
        report.compare("exchange", place, name, getattr(stated, name), getattr(expected, name))


def _check_bytes(reading, world_costs, report):
    pass_bytes = PassBytes(reading, world_costs)
    for rank, program in enumerate(reading.programs):
        static = _static_bytes(reading, world_costs, rank)
        report.compare("bytes", f"rank {rank}", "static_memory_bytes", program.static_memory_bytes, static)
    for rank, item in reading.instructions():
        place = reading.place(rank, item)
        taken, given_back = pass_bytes.of(rank, item)
        report.compare("bytes", place, "memory_acquired_bytes", item.memory_acquired_bytes, taken)
        report.compare("bytes", place, "memory_released_bytes", item.memory_released_bytes, given_back)


def _static_bytes(reading, world_costs, rank):
    of_mesh = world_costs.of_rank(rank)
    stages = of_mesh.pipeline.stages_of(rank)
    if reading.world.parameter_shares:
        return static_bytes_with_share(of_mesh.costs, stages, world_costs.bytes_of_share(rank))
    return static_bytes(of_mesh.costs, of_mesh.pipeline, stages, reading.options.shard_optimizer_state)


def _check_times(reading, meetings, senders, durations, own, report):
    recomputed = times(reading.programs, meetings, durations)
    if recomputed is None:
        report.require("start times", "plan", False, "some instructions can never start")
        return
    for rank, item in reading.instructions():
        place = reading.place(rank, item)
        report.compare("start times", place, "expected_start_ns", item.expected_start_ns, recomputed.start[rank][item.id])
    if report.topics() & {"rule 2", "rule 3", "rule 4"}:
        return  # What ranks wait for is not defined.
    predictor = Predictor(reading, recomputed, own, senders)
    predicted = reading.plan.predicted
    makespan = predictor.makespan_ns()
    report.compare("predictions", "plan", "makespan_ns", predicted.makespan_ns, makespan)
    report.compare("predictions", "plan", "last_backward_ns", predicted.last_backward_ns, predictor.last_backward_ns())
    bound = reading.plan.lower_bound_ns
    report.require("predictions", "plan", 0 <= bound <= makespan, f"lower_bound_ns {bound} is not within 0 and the makespan {makespan}")
    for rank, stated in enumerate(predicted.ranks):
        bubble = stated.bubble or reading.schema.message("Bubble")
        for name, value in vars(predictor.waits(rank)).items():
            holder = stated if name == "busy_ns" else bubble
            report.compare("predictions", f"rank {rank}", name, getattr(holder, name), value)


def _check_peaks(reading, report):
    for rank, (program, stated) in enumerate(zip(reading.programs, reading.plan.predicted.ranks)):
        largest, at, _ = largest_account(program)
        report.compare("peak memory", f"rank {rank}", "peak_memory_bytes", stated.peak_memory_bytes, largest)
        report.compare("peak memory", f"rank {rank}", "peak_instruction", stated.peak_instruction, at)


def content_hash(schema, plan):
    """Section 13."""
    return hashlib.sha256(schema.serialise(plan, without=("planning_time_ns", "content_hash"))).digest()


def _check_hash(reading, report):
    expected = content_hash(reading.schema, reading.plan)
    report.compare("content hash", "plan", "content_hash", reading.plan.content_hash.hex(), expected.hex())
