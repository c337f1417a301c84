"""Judges a plan by the contract alone: proto/penstock/v1, its messages and execution.md.

`read_plan` recomputes from batch, model, mesh and cost profile all that follows from what the planner decided (which samples
share a micro-batch, in which order instructions are listed, what is recomputed), and compares it with what the plan states.
"""

import hashlib

import habits
import rules
from costs import Costs, round_half_up
from durations import optimizer_duration, parameter_bytes, pass_durations, reduce_duration
from execution import times
from memory import ELEMENT_BYTES, largest_account, stage_bytes, static_bytes
from predictions import PASSES, Predictor
from reading import Reading
from report import Report
from structure import check_structure

PLAN_FILE = "penstock/v1/plan.proto"
DEFAULT_POSITION_BUCKETS = 32
NORM_BYTES = 8


def read_plan(schema, planned_batch, profile_file, check_habits=False):
    """Returns the Report of a plan. `check_habits`: also what execution.md says of Penstock's own planner. Raises NoCost."""
    report = Report()
    if not check_structure(schema, planned_batch, report):
        return report
    reading = Reading(schema, planned_batch)
    costs = Costs(profile_file.profile, reading.is_t5)
    _check_origin(reading, profile_file, report)
    _check_topology(reading, report)
    rules.check_samples(reading, report)
    rules.check_tokens(reading, report)
    rules.check_contents(reading, report)
    rules.check_schedule(reading, report)
    rules.check_collectives(reading, lambda rank, item: _collective_bytes(reading, costs, item), report)
    rules.check_memory(reading, report)
    durations = _check_durations(reading, costs, report)
    _check_bytes(reading, costs, report)
    met = rules.check_transfers(reading, report)
    if met is not None:
        _check_times(reading, *met, durations, report)
    _check_peaks(reading, report)
    _check_hash(reading, report)
    if check_habits:
        habits.check(reading, report)
    return report


def _check_origin(reading, profile_file, report):
    """The plan was made for this model and this profile, with its own options."""
    report.compare("origin", "plan", "model", reading.plan.model, profile_file.model)
    report.compare("origin", "plan", "profile_version", reading.plan.profile_version, profile_file.profile.version)
    options, pipeline = reading.options, reading.pipeline
    places = [pipeline.rank(0, stage.index) for stage in pipeline.stages]
    report.compare("origin", "options", "layers_per_stage", options.layers_per_stage, reading.plan.layers_per_stage)
    one_each = list(range(len(places)))
    report.compare("origin", "options", "rank_of_stage", options.rank_of_stage or one_each, places)
    limit = options.memory_limit_bytes or profile_file.profile.cluster.memory_bytes
    for rank, program in enumerate(reading.programs):
        report.compare("origin", f"rank {rank}", "memory_limit_bytes", program.memory_limit_bytes, limit)


def _check_topology(reading, report):
    topology = reading.plan.topology or reading.schema.message("Topology")
    pipeline = reading.pipeline
    stated = [
        [(stage.encoder_layers, stage.decoder_layers, stage.ranks) for stage in replica.stages] for replica in topology.replicas
    ]
    expected = [
        [(stage.encoder_layers, stage.decoder_layers, [pipeline.rank(replica, stage.index)]) for stage in pipeline.stages]
        for replica in range(pipeline.replicas)
    ]
    report.compare("topology", "plan", "topology", stated, expected)


def _collective_bytes(reading, costs, item):
    if reading.op(item) == "REDUCE_GRADIENTS":
        return round_half_up(parameter_bytes(costs, reading.pipeline.stages[item.stage]))
    model = reading.plan.model
    element = 8 if reading.dtype == "FLOAT64" else 4
    buckets = model.relative_position_buckets or DEFAULT_POSITION_BUCKETS
    shared = sum(reading.pipeline.stages_with(kind) > 1 for kind in ("encoder", "decoder")) if reading.is_t5 else 0
    tied = element * model.vocab * model.hidden if sum(stage.tied_uses > 0 for stage in reading.pipeline.stages) > 1 else 0
    return NORM_BYTES + shared * element * buckets * model.heads + tied


def _check_durations(reading, costs, report):
    """Returns the recomputed durations, [rank][id]."""
    pipeline = reading.pipeline
    result = [[0] * len(program.instructions) for program in reading.programs]
    passes = {}
    sharded = reading.options.shard_optimizer_state

    def holders(stage):
        return [pipeline.rank(replica, stage.index) for replica in range(pipeline.replicas)]

    for rank, item in reading.instructions():
        op, stage = reading.op(item), pipeline.stages[item.stage]
        replica = reading.replica_of(rank)
        duration = 0
        if op in PASSES:
            key = (replica, item.micro_batch, item.stage)
            if key not in passes:
                recompute = reading.micro_batches(rank)[item.micro_batch].recompute[item.stage]
                passes[key] = pass_durations(costs, stage, reading.sums(replica, item.micro_batch), recompute)
            duration = passes[key][op]
        elif item.transfer is not None:
            duration = costs.transfer_ns(item.transfer.bytes, rank, item.transfer.peer)
        elif op == "REDUCE_GRADIENTS":
            duration = reduce_duration(costs, stage, holders(stage), sharded)
        elif op == "OPTIMIZER_STEP":
            duration = sum(optimizer_duration(costs, own, holders(own), sharded) for own in pipeline.stages_of(rank))
        result[rank][item.id] = duration
        report.compare("durations", reading.place(rank, item), "expected_duration_ns", item.expected_duration_ns, duration)
    return result


def _check_bytes(reading, costs, report):
    pipeline = reading.pipeline
    known = {}

    def bytes_of(replica, index, stage):
        if (replica, index, stage.index) not in known:
            crossing = [0] + [
                rules.product(rules.expected_shape(reading, replica, index, boundary)) * ELEMENT_BYTES[reading.dtype]
                for boundary in range(len(pipeline.stages) - 1)
            ]
            crossing.append(0)
            recompute = reading.plan.replicas[replica].micro_batches[index].recompute[stage.index]
            sums = reading.sums(replica, index)
            before, after = crossing[stage.index : stage.index + 2]
            known[(replica, index, stage.index)] = stage_bytes(costs, stage, sums, recompute, before, after)
        return known[(replica, index, stage.index)]

    sharded = reading.options.shard_optimizer_state
    for rank, program in enumerate(reading.programs):
        static = static_bytes(costs, pipeline.stages_of(rank), pipeline.replicas, sharded)
        report.compare("bytes", f"rank {rank}", "static_memory_bytes", program.static_memory_bytes, static)
    for rank, item in reading.instructions():
        op, place = reading.op(item), reading.place(rank, item)
        taken = given_back = 0
        if item.collective is None:
            known_bytes = bytes_of(reading.replica_of(rank), item.micro_batch, pipeline.stages[item.stage])
            taken, given_back = known_bytes.taken(op, item.part), known_bytes.given_back(op, item.part)
        report.compare("bytes", place, "memory_acquired_bytes", item.memory_acquired_bytes, taken)
        report.compare("bytes", place, "memory_released_bytes", item.memory_released_bytes, given_back)


def _check_times(reading, meetings, senders, durations, report):
    recomputed = times(reading.programs, meetings, durations)
    if recomputed is None:
        report.require("start times", "plan", False, "some instructions can never start")
        return
    for rank, item in reading.instructions():
        place = reading.place(rank, item)
        report.compare("start times", place, "expected_start_ns", item.expected_start_ns, recomputed.start[rank][item.id])
    if report.topics() & {"rule 2", "rule 3", "rule 4"}:
        return  # What ranks wait for is not defined.
    predictor = Predictor(reading.plan, recomputed, reading.op, senders)
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


def _check_hash(reading, report):
    serialised = reading.schema.serialise(reading.plan, without=("planning_time_ns", "content_hash"))
    expected = hashlib.sha256(serialised).hexdigest()
    report.compare("content hash", "plan", "content_hash", reading.plan.content_hash.hex(), expected)
