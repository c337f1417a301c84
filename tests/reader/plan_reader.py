"""Judges a plan by the contract alone: proto/penstock/v1, its messages and execution.md.

`read_plan` recomputes from batch, model, mesh and cost profile all that follows from what the planner decided (which samples
share a micro-batch, in which order instructions are listed, what is recomputed), and compares it with what the plan states.
"""

import hashlib

import habits
import rules
from costs import Costs, round_half_up
from durations import (
    optimizer_duration,
    pass_durations,
    rank_parameter_bytes,
    reduce_duration,
    reshard_bytes,
    reshard_duration,
    share_duration,
)
from exchange import NAMES, Exchanges, PassExchange
from execution import times
from memory import largest_account, stage_bytes, static_bytes
from memory_units import ELEMENT_BYTES
from predictions import Predictor
from reading import PASSES, Reading
from report import Report
from structure import check_structure
from token_sums import side_lengths

PLAN_FILE = "penstock/v1/plan.proto"
DEFAULT_POSITION_BUCKETS = 32
NORM_BYTES = 8


def read_plan(schema, planned_batch, profile_file, check_habits=False):
    """Returns the Report of a plan. `check_habits`: also what execution.md says of Penstock's own planner. Raises NoCost."""
    report = Report()
    if not check_structure(schema, planned_batch, report):
        return report
    reading = Reading(schema, planned_batch)
    costs = Costs(profile_file.profile, reading.plan.model, reading.is_t5, reading.pipeline.tensors, reading.pipeline.contexts, reading.pipeline.experts)
    exchanges = Exchanges(reading, costs)
    _check_origin(reading, profile_file, report)
    rules.check_samples(reading, report)
    rules.check_tokens(reading, report)
    rules.check_contents(reading, report)
    rules.check_schedule(reading, report)
    rules.check_collectives(reading, lambda rank, item: _collective_bytes(reading, costs, item), report)
    rules.check_memory(reading, report)
    durations, own = _check_durations(reading, costs, exchanges, report)
    _check_bytes(reading, costs, exchanges, report)
    met = rules.check_transfers(reading, report)
    if met is not None:
        _check_times(reading, *met, durations, own, report)
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
    report.compare("origin", "options", "layers_per_stage", options.layers_per_stage, reading.plan.layers_per_stage)
    positions = options.rank_of_stage or list(range(len(pipeline.stages)))
    for replica in range(pipeline.replicas):
        for stage, position in zip(pipeline.stages, positions):
            first = (replica * pipeline.length + position) * pipeline.group_size
            stated = [pipeline.rank(replica, stage.index, place) for place in range(pipeline.group_size)]
            ranks = list(range(first, first + pipeline.group_size))
            report.compare("origin", f"replica {replica}, stage {stage.index}", "ranks", stated, ranks)
    _check_options(reading, report)
    limit = options.memory_limit_bytes or profile_file.profile.cluster.memory_bytes
    for rank, program in enumerate(reading.programs):
        report.compare("origin", f"rank {rank}", "memory_limit_bytes", program.memory_limit_bytes, limit)


def _check_options(reading, report):
    """The plan is one that its options allow (section 12)."""
    schema, options = reading.schema, reading.options
    both = options.shard_optimizer_state and options.parameter_shares
    report.require("origin", "options", not both, "shard_optimizer_state and parameter_shares")
    allowed = schema.enum_name("Schedule", options.schedule)
    stated = schema.enum_name("Schedule", reading.plan.schedule)
    families = {
        "ONE_FORWARD_ONE_BACKWARD": {"ONE_FORWARD_ONE_BACKWARD"},
        "READY_FIRST": {"READY_FIRST"},
        "SPLIT_BACKWARD": {"SPLIT_BACKWARD", "READY_FIRST"},
        "INTERLEAVED": {"READY_FIRST"},
    }
    holds = allowed not in families or stated in families[allowed] | {"INTERLEAVED"}
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


def _collective_bytes(reading, costs, item):
    if reading.op(item) == "REDUCE_GRADIENTS":
        return rank_parameter_bytes(costs, reading.pipeline.stages[item.stage])
    if reading.op(item) in PASSES:
        return 0
    if reading.op(item) == "RESHARD":
        return reshard_bytes(costs, reading.pipeline)
    if reading.pipeline.parameter_shares or reading.plan.model.adapters is not None:
        return NORM_BYTES
    model = reading.plan.model
    element = 8 if reading.dtype == "FLOAT64" else 4
    buckets = model.relative_position_buckets or DEFAULT_POSITION_BUCKETS
    shared = sum(reading.pipeline.stages_with(kind) > 1 for kind in ("encoder", "decoder")) if reading.is_t5 else 0
    tied = element * model.vocab * model.hidden if sum(stage.tied_uses > 0 for stage in reading.pipeline.stages) > 1 else 0
    return NORM_BYTES + shared * element * buckets * model.heads + tied


def _check_durations(reading, costs, exchanges, report):
    """Returns the recomputed durations, and what instructions would take on their ranks alone, both [rank][id]."""
    pipeline = reading.pipeline
    durations = [[0] * len(program.instructions) for program in reading.programs]
    own = [[0] * len(program.instructions) for program in reading.programs]
    passes = {}

    def of_contexts(replica, index, stage):
        """[(own durations by op, exchange by op)] of the context ranks."""
        key = (replica, index, stage.index)
        if key not in passes:
            recompute = reading.plan.replicas[replica].micro_batches[index].recompute[stage.index]
            shares = [reading.share(replica, index, context) for context in range(pipeline.contexts)]
            factor = costs.slowness(pipeline.ranks_of_group(replica, stage))
            passes[key] = [_slowed(_pass_costs(costs, exchanges, stage, share, recompute), factor) for share in shares]
        return passes[key]

    for rank, item in reading.instructions():
        op, stage, place = reading.op(item), pipeline.stages[item.stage], reading.place(rank, item)
        duration = alone = 0
        if op in PASSES:
            found = of_contexts(reading.replica_of(rank), item.micro_batch, stage)
            alone, exchange = found[pipeline.context(rank)][op]
            duration = max(costs_of[op][0] for costs_of in found)
            if reading.is_joint(item):
                report.compare("durations", place, "own_duration_ns", item.own_duration_ns, alone)
                _compare_exchange(item, exchange, place, report)
        elif item.transfer is not None:
            duration = alone = costs.transfer_ns(item.transfer.bytes, rank, item.transfer.peer)
        else:
            duration = alone = _update_duration(reading, costs, rank, op, stage)
        durations[rank][item.id], own[rank][item.id] = duration, alone
        report.compare("durations", place, "expected_duration_ns", item.expected_duration_ns, duration)
    return durations, own


def _update_duration(reading, costs, rank, op, stage):
    """What it takes to sum gradients, to update parameters and to bring both to and from shares; of all others nothing."""
    pipeline, sharded = reading.pipeline, reading.options.shard_optimizer_state
    if op == "RESHARD":
        return reshard_duration(costs, pipeline)
    if op == "REDUCE_GRADIENTS":
        return reduce_duration(costs, stage, pipeline, pipeline.tensor(rank), sharded)
    if op != "OPTIMIZER_STEP":
        return 0
    if pipeline.parameter_shares:
        return share_duration(costs, pipeline)
    return sum(optimizer_duration(costs, held, pipeline, pipeline.tensor(rank), sharded) for held in pipeline.stages_of(rank))


def _pass_costs(costs, exchanges, stage, share, recompute):
    """{op: (own duration, PassExchange)} of a rank with a share of a micro-batch."""
    result = {}
    computed_in = pass_durations(costs, stage, share.sums, recompute)
    beside = exchanges.products_beside(share.sums)
    if beside:
        computed_in["BACKWARD_WEIGHT"] -= beside.taken_ns(stage.decoder_layers)
        computed_in["BACKWARD_INPUT"] += beside.taken_ns(stage.decoder_layers)
    for op, computed in computed_in.items():
        exchange = exchanges.of_pass(op, stage, share, recompute)
        result[op] = (computed + exchange.added_ns, exchange)
    return result


def _slowed(costs_of, factor):
    """The same on a stage group that is slow; rounded once more."""
    if factor == 1:
        return costs_of
    result = {op: (round_half_up(own * factor), exchange) for op, (own, exchange) in costs_of.items()}
    inputs = result["BACKWARD"][0] - result["BACKWARD_WEIGHT"][0]
    return {**result, "BACKWARD_INPUT": (inputs, costs_of["BACKWARD_INPUT"][1])}


def _compare_exchange(item, expected, place, report):
    stated = item.exchange or PassExchange()
    report.compare("exchange", place, "having an exchange", item.exchange is not None, not expected.is_empty)
    for name in NAMES:
        report.compare("exchange", place, name, getattr(stated, name), getattr(expected, name))


def _check_bytes(reading, costs, exchanges, report):
    pipeline = reading.pipeline
    known = {}

    def bytes_of(rank, index, stage):
        """Of a micro-batch on a stage at the place of a rank."""
        replica = reading.replica_of(rank)
        key = (replica, index, stage.index, pipeline.place(rank))
        if key not in known:
            crossing = [0] + [
                rules.product(rules.expected_shape(reading, rank, index, boundary)) * ELEMENT_BYTES[reading.dtype]
                for boundary in range(len(pipeline.stages) - 1)
            ]
            crossing.append(0)
            recompute = reading.plan.replicas[replica].micro_batches[index].recompute[stage.index]
            share = reading.share(replica, index, pipeline.context(rank))
            tokens = share.sums.source_tokens + share.sums.target_tokens
            element = ELEMENT_BYTES[reading.dtype]
            token_bytes = reading.plan.model.hidden * element if pipeline.tensors > 1 else 0
            keys = share.divided_tokens * exchanges.key_value_bytes() if share.divided_tokens else 0
            around = crossing[stage.index : stage.index + 2]
            known[key] = stage_bytes(costs, stage, share.sums, recompute, around, (2 * tokens * token_bytes, keys, costs.rows(share.sums)), token_bytes)
        return known[key]

    sharded = reading.options.shard_optimizer_state
    for rank, program in enumerate(reading.programs):
        static = static_bytes(costs, pipeline, pipeline.stages_of(rank), sharded)
        report.compare("bytes", f"rank {rank}", "static_memory_bytes", program.static_memory_bytes, static)
    for rank, item in reading.instructions():
        op, place = reading.op(item), reading.place(rank, item)
        taken = given_back = 0
        if op not in ("REDUCE_GRADIENTS", "RESHARD", "OPTIMIZER_STEP"):
            known_bytes = bytes_of(rank, item.micro_batch, pipeline.stages[item.stage])
            taken, given_back = known_bytes.taken(op, item.part), known_bytes.given_back(op, item.part)
        report.compare("bytes", place, "memory_acquired_bytes", item.memory_acquired_bytes, taken)
        report.compare("bytes", place, "memory_released_bytes", item.memory_released_bytes, given_back)


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
