"""The seven rules of a valid plan (execution.md, section 12). Rule 6 asks memory.py, rule 2 execution.py."""

import math
from collections import Counter, defaultdict

from contents import expected_contents, stream_of
from execution import Meetings, blocked_ranks
from memory import boundary_shape, largest_account, largest_in_every_order
from memory_units import ELEMENT_BYTES
from order import certainly_before
from parts import check_parts
from shares import is_allowed, part_of, rows_of
from token_sums import loss_positions, loss_weight, side_lengths

# --- Rule 1: every sample once.


def check_samples(reading, report):
    # Of ranks with less memory a replica may have room for none.
    may_be_empty = len(reading.options.rank_memory_limits) > 0
    places = Counter()
    for pipeline in reading.world.pipelines:
        replicas = [reading.plan.replicas[replica].micro_batches for replica in pipeline.replicas]
        enough = sum(len(item.samples) for micro_batches in replicas for item in micro_batches) >= len(replicas)
        for replica, micro_batches in zip(pipeline.replicas, replicas):
            report.require("rule 1", f"replica {replica}", micro_batches or not enough or may_be_empty, "it has no micro-batch")
    for replica, messages in enumerate(reading.plan.replicas):
        for index, micro_batch in enumerate(messages.micro_batches):
            place = f"replica {replica}, micro-batch {index}"
            report.require("rule 1", place, len(micro_batch.samples) > 0, "it has no sample")
            places.update(micro_batch.samples)
    for index in range(len(reading.samples)):
        report.compare("rule 1", f"sample {index}", "number of micro-batches with it", places[index], 1)


# --- Rule 2: transfers and blocking issue.


def check_transfers(reading, report):
    """Returns the Meetings of all transfers and collectives, and {(rank, RECV): (rank, SEND)}; None where ends do not match."""
    ends = defaultdict(lambda: defaultdict(list))  # (from, to) -> op -> instructions in the order of the program
    matched = True
    for rank, item in reading.instructions():
        if item.transfer is None:
            continue
        op = reading.op(item)
        pair = (rank, item.transfer.peer) if op == "SEND" else (item.transfer.peer, rank)
        ends[pair][op].append(item)
        _check_transfer_fields(reading, rank, item, report)
    together, senders = {}, {}
    for (source, target), sides in ends.items():
        place = f"transfers from rank {source} to rank {target}"
        report.compare("rule 2", place, "number of RECVs", len(sides["RECV"]), len(sides["SEND"]))
        matched = matched and len(sides["RECV"]) == len(sides["SEND"])
        for sequence, (send, receive) in enumerate(zip(sides["SEND"], sides["RECV"])):
            place = reading.place(source, send)
            for item in (send, receive):
                report.compare("rule 2", place, "sequence", item.transfer.sequence, sequence)
            for field in ("kind", "shape", "dtype", "bytes", "sequence", "order"):
                report.compare("rule 2", place, f"{field} at its RECV", getattr(receive.transfer, field), getattr(send.transfer, field))
            report.compare("rule 2", place, "micro-batch at its RECV", receive.micro_batch, send.micro_batch)
            report.compare("rule 2", place, "part at its RECV", receive.part, send.part)
            step = 1 if send.part == 0 else -1
            report.compare("rule 2", place, "stage at its RECV", receive.stage, send.stage + step)
            members = ((source, send.id), (target, receive.id))
            together.update({member: members for member in members})
            senders[(target, receive.id)] = (source, send.id)
    _check_transfer_order(reading, report)
    if not matched:
        return None
    together.update(_collective_meetings(reading, report))
    meetings = Meetings(together)
    blocked = blocked_ranks(reading.programs, meetings)
    for rank, at in blocked.items():
        place = reading.place(rank, reading.programs[rank].instructions[at])
        report.require("rule 2", place, False, "the rank never gets past it when programs are issued one instruction at a time")
    if not blocked:
        report.agreed["rule 2"] += 1
    return meetings, senders


def _check_transfer_fields(reading, rank, item, report):
    place, transfer, plan = reading.place(rank, item), item.transfer, reading.plan
    kind = "GRADIENT" if item.part == 1 else "ACTIVATION"
    report.compare("rule 2", place, "kind", reading.schema.enum_name("TransferKind", transfer.kind), kind)
    report.compare("rule 2", place, "dtype", transfer.dtype, plan.model.dtype)
    # The boundary is after this stage for a sent activation and a received gradient, else before it.
    boundary = item.stage if (reading.op(item) == "SEND") == (item.part == 0) else item.stage - 1
    other = item.stage + 1 if boundary == item.stage else boundary
    pipeline = reading.pipeline_of(rank)
    if not 0 <= boundary < len(pipeline.stages) - 1:
        report.require("rule 2", place, False, "there is no boundary for it")
        return
    replica = reading.replica_of(rank)
    report.compare("rule 2", place, "peer", transfer.peer, pipeline.rank(replica, other, pipeline.place(rank)))
    shape = expected_shape(reading, rank, item.micro_batch, boundary)
    report.compare("shapes", place, "shape", transfer.shape, shape)
    report.compare("shapes", place, "transferred bytes", transfer.bytes, product(shape) * ELEMENT_BYTES[reading.dtype])


def expected_shape(reading, rank, index, boundary):
    """Shape of what crosses the boundary after a stage at the place of a rank."""
    replica, pipeline = reading.replica_of(rank), reading.pipeline_of(rank)
    stage = pipeline.stages[boundary]
    if pipeline.group_size > 1:
        return _shape_of_place(reading, rank, index, stage)
    micro_batch = reading.plan.replicas[replica].micro_batches[index]
    is_packed = reading.layout(micro_batch) == "PACKED"
    return boundary_shape(is_packed, reading.plan.model.hidden, stage, reading.sums(replica, index), reading.is_t5)


def _shape_of_place(reading, rank, index, stage):
    pipeline, hidden = reading.pipeline_of(rank), reading.plan.model.hidden
    sums = reading.share(reading.replica_of(rank), index, pipeline.context(rank)).sums
    source = part_of(sums.source_tokens, pipeline.tensor(rank), pipeline.tensors)
    target = part_of(sums.target_tokens, pipeline.tensor(rank), pipeline.tensors)
    if not reading.is_t5:
        return [target, hidden]
    return [source, hidden] if stage.encoder_boundary_after else [(source + target) * hidden]


def product(shape):
    result = 1
    for size in shape:
        result *= size
    return result


def _check_transfer_order(reading, report):
    """`order` counts the transfers of a replica, and every rank lists its own in this order."""
    of_replica, of_data = defaultdict(set), defaultdict(set)
    for rank, program in enumerate(reading.programs):
        orders = [item.transfer.order for item in program.instructions if item.transfer is not None]
        report.compare("rule 2", f"rank {rank}", "order of transfers", orders, sorted(set(orders)))
        of_replica[(reading.replica_of(rank), reading.pipeline_of(rank).place(rank))].update(orders)
        for item in program.instructions:
            if item.transfer is not None:
                key = reading.key(item)
                of_data[(reading.replica_of(rank), key)].add(item.transfer.order)
    for (replica, place), orders in of_replica.items():
        report.compare("rule 2", f"replica {replica}, place {place}", "order of transfers", sorted(orders), list(range(len(orders))))
    for (replica, key), orders in of_data.items():
        report.compare("rule 2", f"replica {replica}", f"number of orders of {key}", len(orders), 1)


# --- Rule 3: streams, and data after what makes it. Rule 4: what programs hold.


def check_contents(reading, report):
    for rank, program in enumerate(reading.programs):
        expected = expected_contents(reading, rank)
        actual = reading.by_key[rank]
        for key in expected.keys() | actual.keys():
            topic = "rule 2" if key.op in ("SEND", "RECV") else "rule 4"
            report.require(topic, f"rank {rank}", key in actual, f"{key} is missing")
            report.require(topic, f"rank {rank}", key in expected, f"{key} should not be there")
        if reading.world.parameter_shares:
            first = reading.key(program.instructions[0]) if program.instructions else None
            at_start = first is not None and (first.op, first.part) == ("RESHARD", 0)
            report.require("rule 4", f"rank {rank}", at_start, "the first instruction is no RESHARD of parameters")
        last = program.instructions[-1] if program.instructions else None
        at_end = last is not None and reading.op(last) == "OPTIMIZER_STEP"
        report.require("rule 4", f"rank {rank}", at_end or reading.forward_only, "the last instruction is no OPTIMIZER_STEP")
        if at_end:
            report.compare("rule 4", f"rank {rank}", "stage of the OPTIMIZER_STEP", last.stage, min(program.stages))
        order = certainly_before(program)
        for item in program.instructions:
            key, place = reading.key(item), reading.place(rank, item)
            report.compare("rule 3", place, "stream", reading.stream(item), stream_of(key))
            for needed in expected.get(key, []):
                if needed in actual:
                    holds = order.ends_before(actual[needed], item)
                    report.require("rule 3", place, holds, f"{needed} is not certain to end before it starts")
            if key.op == "WAIT":
                of = _transfer_of(key)
                report.require("rule 3", place, of not in actual or actual[of].id == item.transfer_id, f"it does not wait for {of}")


def _transfer_of(wait):
    """The key of the transfer that a WAIT is for."""
    return wait._replace(op="RECV" if wait.part in (0, 1) else "SEND", part=wait.part % 2)


def check_schedule(reading, report):
    """Rule 4: micro-batches enter in order, and the programs are of the family that the plan names."""
    forward = {(rank, item.stage): [] for rank, item in reading.instructions()}
    backward = {key: [] for key in forward}
    one_forward_one_backward = True
    for rank, program in enumerate(reading.programs):
        for item in program.instructions:
            key, op = (rank, item.stage), reading.op(item)
            if op == "FORWARD":
                forward[key].append(item.micro_batch)
                in_flight = len(forward[key]) - len(backward[key])
                one_forward_one_backward &= in_flight <= len(reading.pipeline_of(rank).stages) - item.stage
            elif op in ("BACKWARD", "BACKWARD_INPUT"):
                backward[key].append(item.micro_batch)
    for (rank, stage), entered in forward.items():
        in_order = entered == sorted(entered)
        if stage == 0:
            report.require("rule 4", f"rank {rank}", in_order, "micro-batches do not enter in order")
        one_forward_one_backward &= in_order and backward[(rank, stage)] == sorted(backward[(rank, stage)])
    allowed = {"READY_FIRST"} | ({"ONE_FORWARD_ONE_BACKWARD"} if one_forward_one_backward else set())
    if any(len(program.stages) > 1 for program in reading.programs):
        allowed = {"INTERLEAVED"}
    if any(reading.op(item) == "BACKWARD_WEIGHT" for _, item in reading.instructions()):
        allowed = {"SPLIT_BACKWARD"}
    if reading.forward_only:
        allowed = {"UNSPECIFIED"}
    stated = reading.schema.enum_name("Schedule", reading.plan.schedule)
    report.require("rule 4", "plan", stated in allowed, f"schedule is {stated}, should be {' or '.join(sorted(allowed))}")


# --- Rule 5: groups and sequences.


def _collective_meetings(reading, report):
    """{(rank, id): members} of all collectives: the n-th of a group on each of its ranks start together."""
    together = {}
    for group, ranks in enumerate(message.ranks for message in reading.plan.groups):
        lists = [_collectives_of_group(reading, rank, group) for rank in ranks if rank < len(reading.programs)]
        for members in zip(*lists):
            names = tuple((rank, item.id) for rank, item in zip(ranks, members))
            together.update({name: names for name in names})
    return together


def _collectives_of_group(reading, rank, group):
    return [item for item in reading.programs[rank].instructions if item.collective and item.collective.group == group]


def _what_it_is(reading, item):
    """What all ranks of a collective have in common."""
    of_all_stages = reading.op(item) in ("OPTIMIZER_STEP", "RESHARD")
    return item.op, None if of_all_stages else item.stage, item.micro_batch, item.collective.bytes


def check_collectives(reading, collective_bytes, report):
    """`collective_bytes(rank, instruction)` is what each rank contributes; None if it is not known."""
    expected = reading.world.groups()
    report.compare("rule 5", "plan", "groups", [group.ranks for group in reading.plan.groups], expected)
    for group, ranks in enumerate(message.ranks for message in reading.plan.groups):
        place = f"group {group}"
        report.require("rule 5", place, all(rank < len(reading.programs) for rank in ranks), "a rank does not exist")
        lists = {}
        for rank, program in enumerate(reading.programs):
            items = _collectives_of_group(reading, rank, group)
            if rank in ranks:
                lists[rank] = [_what_it_is(reading, item) for item in items]
                sequences = [item.collective.sequence for item in items]
                report.compare("rule 5", f"{place}, rank {rank}", "sequences", sequences, list(range(len(items))))
            else:
                report.require("rule 5", f"{place}, rank {rank}", not items, "a rank outside of the group uses it")
        entries = list(lists.values())
        report.require("rule 5", place, all(entry == entries[0] for entry in entries), "its ranks run other things")
        counts = {len(entries) for entries in lists.values()}
        report.require("rule 5", place, len(counts) <= 1, "its ranks have different numbers of collectives")
    for rank, item in reading.instructions():
        if item.collective is None or item.collective.group >= len(reading.plan.groups):
            continue
        place = reading.place(rank, item)
        group = reading.world.group_of(reading.op(item), rank, item.stage)
        report.compare("rule 5", place, "its group", item.collective.group, group)
        if collective_bytes is not None:
            report.compare("bytes", place, "collective bytes", item.collective.bytes, collective_bytes(rank, item))


# --- Rule 6: memory.


def check_memory(reading, report):
    compute = reading.schema.enums["Stream"]["STREAM_COMPUTE"]
    for rank, program in enumerate(reading.programs):
        place = f"rank {rank}"
        held = Counter()
        for item in program.instructions:
            # Without a pass back a stage's output is given back by the stage above, which may be on the same rank.
            name = (0 if reading.forward_only else item.stage, item.micro_batch)
            held[name] += item.memory_acquired_bytes
            enough = item.memory_released_bytes <= held[name]
            report.require("rule 6", reading.place(rank, item), enough, "it gives back more than its micro-batch holds")
            held[name] -= item.memory_released_bytes
        for (stage, micro_batch), left in held.items():
            report.compare("rule 6", f"{place}, stage {stage}, micro-batch {micro_batch}", "bytes left at the end", left, 0)
        _, _, at_end = largest_account(program)
        report.compare("rule 6", place, "account at the end", at_end, program.static_memory_bytes)
        worst, at = largest_in_every_order(program, compute)
        within = worst <= program.memory_limit_bytes
        text = f"an order exists in which instruction {at} takes the account to {worst}, the limit is {program.memory_limit_bytes}"
        report.require("rule 6", place, within, text)


# --- Rule 7: shapes hold their samples, token counts add up.


def check_tokens(reading, report):
    names = ("computed_tokens", "real_tokens", "loss_tokens")
    totals = Counter()
    for replica, messages in enumerate(reading.plan.replicas):
        for index, micro_batch in enumerate(messages.micro_batches):
            place = f"replica {replica}, micro-batch {index}"
            samples = [reading.samples[sample] for sample in micro_batch.samples]
            sums = reading.sums(replica, index)
            expected = (
                sums.source_tokens + sums.target_tokens,
                sum(sample.input_tokens + sample.target_tokens for sample in samples),
                sum(loss_positions(reading.is_t5, sample) for sample in samples),
            )
            for name, value in zip(names, expected):
                report.compare("rule 7", place, name, getattr(micro_batch, name), value)
                totals[name] += value
            _check_spans(reading, replica, micro_batch, place, report)
            check_parts(reading, micro_batch, reading.world.pipeline_of_replica(replica), place, report)
            _check_layout(reading, micro_batch, [side_lengths(reading.is_t5, sample) for sample in samples], place, report)
    for name in names:
        report.compare("rule 7", "plan", name, getattr(reading.plan, name), totals[name])
    for place, sample in enumerate(reading.samples):
        weight = 0.0 if sample.loss_weight is None else sample.loss_weight
        report.require("rule 7", f"sample {place}", math.isfinite(weight) and weight >= 0, f"its loss_weight is {weight}")
    expected = loss_weight(reading.is_t5, reading.samples)
    report.compare("rule 7", "plan", "loss_weight", reading.plan.loss_weight, expected)


def _check_spans(reading, replica, micro_batch, place, report):
    contexts = reading.world.pipeline_of_replica(replica).contexts
    spans = list(zip(micro_batch.span_first, micro_batch.span_ranks))
    rows = rows_of(reading, micro_batch) if contexts > 1 else []
    counts = (len(micro_batch.span_first), len(micro_batch.span_ranks))
    report.compare("rule 7", place, "numbers of spans", counts, (len(rows), len(rows)))
    for row, ((first, ranks), (length, _)) in enumerate(zip(spans, rows)):
        text = f"row {row} of {length} tokens is on {ranks} context ranks from {first} on"
        report.require("rule 7", place, is_allowed(first, ranks, length, contexts), text)


def _check_layout(reading, micro_batch, lengths, place, report):
    layout = reading.layout(micro_batch)
    sides = ("source", "target")
    rectangle = (micro_batch.rows, micro_batch.source_length, micro_batch.target_length)
    if layout == "PACKED":
        report.compare("rule 7", place, "rows and lengths", rectangle, (0, 0, 0))
        for side, name in enumerate(sides):
            ends = [0]
            for length in lengths:
                ends.append(ends[-1] + length[side])
            expected = ends if reading.is_t5 or name == "target" else []
            report.compare("rule 7", place, f"{name}_cu_seqlens", getattr(micro_batch, f"{name}_cu_seqlens"), expected)
        report.compare("rule 7", place, "row_samples", micro_batch.row_samples, [])
        return
    report.compare("rule 7", place, "cumulative lengths", micro_batch.source_cu_seqlens + micro_batch.target_cu_seqlens, [])
    if layout == "PADDED":
        report.compare("rule 7", place, "rows", micro_batch.rows, len(lengths))
        report.compare("rule 7", place, "row_samples", micro_batch.row_samples, [])
        rows = [[length] for length in lengths]
    else:
        bounds = micro_batch.row_samples
        report.compare("rule 7", place, "number of row_samples", len(bounds), micro_batch.rows + 1)
        ascending = bounds and bounds[0] == 0 and bounds[-1] == len(lengths) and list(bounds) == sorted(bounds)
        report.require("rule 7", place, ascending, "row_samples do not divide its samples into rows")
        rows = [lengths[first:last] for first, last in zip(bounds, bounds[1:])]
    for side, name in enumerate(sides):
        longest = max((sum(length[side] for length in row) for row in rows), default=0)
        fits = longest <= rectangle[side + 1]
        report.require("rule 7", place, fits, f"a row has {longest} {name} tokens, {name}_length is {rectangle[side + 1]}")
    if not reading.is_t5:
        report.compare("rule 7", place, "source_length", micro_batch.source_length, 0)
