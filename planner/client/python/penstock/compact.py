"""Reads compact programs: penstock/v1/compact.proto, whose text says what is done here and why.

    compact.unpack_program(response)       # StreamProgramsResponse: program, micro-batches and samples in full
    compact.unpack_plan(response)          # PlanBatchResponse, GetIterationResponse: all programs of the plan in full

Planners send them to whoever says compact_version in a request.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from penstock.v1 import compact_pb2, job_pb2, plan_pb2, planner_service_pb2

# The newest version of compact.proto that is read here.
VERSION = 1

# No longer message is read, however little it was compressed to.
MOST_BYTES = 256 << 20
_MOST_OF_MICRO_BATCH = 64
_MOST_INSTRUCTIONS = MOST_BYTES // 16
_MOST_DIMENSIONS = 8

_ELEMENT_BYTES = {job_pb2.DATA_TYPE_FLOAT64: 8, job_pb2.DATA_TYPE_FLOAT32: 4}
_EXCHANGE = [field.name for field in sorted(plan_pb2.PassExchange.DESCRIPTOR.fields, key=lambda field: field.number)]


class CompactError(ValueError):
    """What was sent makes no sense, or is more than a program may be. Names the column."""


def is_wanted(failure: Exception) -> bool:
    """What was asked for is larger than a message may be, and would not be if it were compact.

    Reading it takes Python some 20 us an instruction, so it is asked for only then.
    """
    return "compact_version" in str(failure)


def unpack_program(response: planner_service_pb2.StreamProgramsResponse) -> planner_service_pb2.StreamProgramsResponse:
    """The same message, with everything in full, its validation included. Raises CompactError."""
    _take_columns(response)
    # Which has no validation itself.
    if response.HasField("validation"):
        _take_columns(response.validation)
    return response


def _take_columns(response: planner_service_pb2.StreamProgramsResponse) -> None:
    if response.micro_batch_columns:
        _read_micro_batches(response.micro_batch_columns, response)
        response.micro_batch_columns = b""
    if response.instruction_columns:
        tokens = [one.computed_tokens for one in response.micro_batches]
        _read_instructions(response.instruction_columns, tokens, response.program)
        response.instruction_columns = b""


_WithPlan = TypeVar("_WithPlan", planner_service_pb2.PlanBatchResponse, planner_service_pb2.GetIterationResponse)


def unpack_plan(response: _WithPlan) -> _WithPlan:
    """The same message, with the plan in full, its validation included. Raises CompactError."""
    plan, columns = response.plan, list(response.instruction_columns)
    plans = [plan, plan.validation] if plan.HasField("validation") else [plan]
    most = sum(len(one.programs) for one in plans)
    if columns and len(columns) != most:
        raise CompactError(f"instruction_columns: {len(columns)} programs, not {most}")
    for one in plans if columns else []:
        _take_programs(columns[: len(one.programs)], one)
        del columns[: len(one.programs)]
    del response.instruction_columns[:]
    return response


def _take_programs(columns: Sequence[bytes], plan: plan_pb2.Plan) -> None:
    tokens = [[one.computed_tokens for one in replica.micro_batches] for replica in plan.replicas]
    for program, of_program in zip(plan.programs, columns, strict=True):
        if not of_program:
            continue
        if program.replica >= len(tokens):
            raise CompactError(f"plan.programs: replica {program.replica} is none")
        _read_instructions(of_program, tokens[program.replica], program)


def _inflated(compressed: bytes, message: Message) -> None:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(compressed, MOST_BYTES + 1)
    except zlib.error as error:
        raise CompactError(f"columns: {error}") from error
    if len(data) > MOST_BYTES:
        raise CompactError(f"columns: more than {MOST_BYTES} bytes")
    if not inflater.eof or inflater.unused_data:
        raise CompactError("columns: not what zlib has compressed")
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise CompactError(f"columns: {error}") from error


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


class _Column:
    def __init__(self, name: str, differences: Sequence[int]) -> None:
        self.name = name
        self._differences = differences
        self._next = 0

    def value(self, prediction: int, bits: int = 64) -> int:
        """Of a field with so many bits; those with fewer than 64 have no sign."""
        if self._next == len(self._differences):
            raise CompactError(f"{self.name}: has too few values")
        prediction = prediction & 2**bits - 1 if bits < 64 else prediction
        value = _signed(prediction + self._differences[self._next])
        self._next += 1
        if bits < 64 and not 0 <= value < 2**bits:
            raise CompactError(f"{self.name}: {value} is no number of {bits} bits")
        return value

    def end(self) -> None:
        if self._next != len(self._differences):
            raise CompactError(f"{self.name}: has too many values")


class _Instructions:
    """Reads one program's instructions; every prediction is that of the column's comment in the contract."""

    def __init__(self, columns: compact_pb2.InstructionColumns, tokens: Sequence[int], program: plan_pb2.Program) -> None:
        self._columns = {
            field.name: _Column(field.name, getattr(columns, field.name))
            for field in columns.DESCRIPTOR.fields
            if field.name not in ("kinds", "kind")
        }
        self._tokens = tokens
        self._list = program.instructions
        self._kinds: list[int] = []
        self._last_of_kind: dict[int, int] = {}
        self._last_of_micro_batch: dict[tuple[int, int], int] = {}
        self._durations: dict[tuple[int, int], int] = {}
        self._shapes: dict[int, int] = {}
        self._sequences: dict[tuple[int, int], int] = {}
        self._collectives: dict[int, int] = {}
        self._ends: list[int] = []
        self._stream_ends: dict[int, int] = {}
        self._order = 0

    def _tokens_of(self, micro_batch: int) -> int:
        return self._tokens[micro_batch] if micro_batch < len(self._tokens) else 0

    def read(self, number: int, kind: compact_pb2.InstructionKind) -> None:
        position = len(self._kinds)
        now = self._list.add(
            id=position,
            op=kind.common.op,
            stream=kind.common.stream,
            stage=kind.common.stage,
            part=kind.common.part,
            parts=kind.common.parts,
        )
        place = self._last_of_kind.get(number)
        before = None if place is None else self._list[place]
        column = self._columns
        now.micro_batch = column["micro_batch"].value(before.micro_batch + 1 if before else 0, 32)
        self._kinds.append(number)
        self._read_deps(now, kind.deps, before)
        tokens = self._tokens_of(now.micro_batch)
        tokens_before = self._tokens_of(before.micro_batch) if before else 0

        def scaled(value: int) -> int:
            if before is None:
                return 0
            return value if value < 0 or not tokens or not tokens_before else value * tokens // tokens_before

        for field in ("memory_acquired_bytes", "memory_released_bytes"):
            setattr(now, field, column[field].value(scaled(getattr(before, field) if before else 0)))
        ends = [0, self._stream_ends.get(now.stream, 0), *(self._ends[dep] for dep in now.deps if dep < position)]
        now.expected_start_ns = column["expected_start_ns"].value(max(ends))
        duration = self._durations.get((number, tokens))
        if duration is None:
            duration = scaled(before.expected_duration_ns if before else 0)
        now.expected_duration_ns = column["expected_duration_ns"].value(duration)
        if kind.common.HasField("transfer"):
            self._read_transfer(now, kind.common.transfer, tokens)
        if kind.has_transfer_id:
            now.transfer_id = column["transfer_id"].value(now.deps[-1] if now.deps else 0, 32)
        if kind.common.HasField("collective"):
            collective = now.collective
            group = collective.group = kind.common.collective.group
            collective.SetInParent()
            collective.sequence = column["collective_sequence"].value(self._collectives.get(group, -1) + 1, 32)
            self._collectives[group] = collective.sequence
            prediction = scaled(_signed(before.collective.bytes) if before else 0)
            collective.bytes = column["collective_bytes"].value(prediction) & 2**64 - 1
        if kind.has_own_duration:
            now.own_duration_ns = column["own_duration_ns"].value(now.expected_duration_ns)
        if kind.common.HasField("exchange"):
            now.exchange.SetInParent()
            for field in _EXCHANGE:
                self._read_exchanged(now, field, scaled(_signed(getattr(before.exchange, field)) if before else 0))
        end = _signed(now.expected_start_ns + now.expected_duration_ns)
        self._ends.append(end)
        self._stream_ends[now.stream] = end
        self._last_of_kind[number] = position
        self._last_of_micro_batch[number, now.micro_batch] = position
        self._durations[number, tokens] = now.expected_duration_ns

    def _read_deps(self, now: plan_pb2.Instruction, count: int, before: plan_pb2.Instruction | None) -> None:
        for place in range(count):
            prediction = now.id - 1
            if before is not None and before.deps[place] < before.id:
                dep = before.deps[place]
                micro_batch = (self._list[dep].micro_batch + now.micro_batch - before.micro_batch) % 2**32
                found = self._last_of_micro_batch.get((self._kinds[dep], micro_batch))
                prediction = now.id - (before.id - dep) if found is None else found
            now.deps.append(self._columns["deps"].value(prediction, 32))

    def _read_transfer(self, now: plan_pb2.Instruction, common: plan_pb2.Transfer, tokens: int) -> None:
        column, transfer = self._columns, now.transfer
        transfer.CopyFrom(plan_pb2.Transfer(peer=common.peer, kind=common.kind, dtype=common.dtype, shape=common.shape))
        transfer.SetInParent()
        if transfer.shape:
            transfer.shape[0] = column["shape"].value(self._shapes.get(now.micro_batch, tokens), 32)
            self._shapes[now.micro_batch] = transfer.shape[0]
        size = _ELEMENT_BYTES.get(transfer.dtype, 2)
        for number in transfer.shape:
            size *= number
        transfer.bytes = column["transfer_bytes"].value(_signed(size)) & 2**64 - 1
        way = now.op, transfer.peer
        transfer.sequence = column["transfer_sequence"].value(self._sequences.get(way, -1) + 1, 32)
        self._sequences[way] = transfer.sequence
        transfer.order = column["transfer_order"].value(self._order, 32)
        self._order = transfer.order + 1

    def _read_exchanged(self, now: plan_pb2.Instruction, field: str, prediction: int) -> None:
        value = self._columns["exchange"].value(prediction)
        kind = plan_pb2.PassExchange.DESCRIPTOR.fields_by_name[field]
        try:
            if kind.type == kind.TYPE_BOOL:
                setattr(now.exchange, field, {0: False, 1: True}[value])
            else:
                setattr(now.exchange, field, value & 2**64 - 1 if kind.type == kind.TYPE_UINT64 else value)
        except (KeyError, ValueError) as error:
            raise CompactError(f"exchange: {value} is no {field}") from error

    def end(self) -> None:
        for column in self._columns.values():
            column.end()


def _read_instructions(compressed: bytes, tokens: Sequence[int], program: plan_pb2.Program) -> None:
    if program.instructions:
        raise CompactError("instruction_columns: the program has its instructions, too")
    columns = compact_pb2.InstructionColumns()
    _inflated(compressed, columns)
    most = min(_MOST_INSTRUCTIONS, _MOST_OF_MICRO_BATCH * len(program.stages) * (len(tokens) + 1))
    if len(columns.kind) > most:
        raise CompactError(f"kind: {len(columns.kind)} instructions, and {most} are the most")
    for kind in columns.kinds:
        if len(kind.common.transfer.shape) > _MOST_DIMENSIONS or kind.deps > len(columns.deps):
            raise CompactError("kinds: more numbers than a transfer, or deps than their column, has")
    instructions = _Instructions(columns, tokens, program)
    for number in columns.kind:
        if number >= len(columns.kinds):
            raise CompactError(f"kind: {number} is none")
        instructions.read(number, columns.kinds[number])
    instructions.end()


def _read_micro_batches(compressed: bytes, response: planner_service_pb2.StreamProgramsResponse) -> None:
    columns = compact_pb2.MicroBatchColumns()
    _inflated(compressed, columns)
    _read_samples(columns, response)
    counts = (len(columns.samples), len(columns.source_cu_seqlens), len(columns.target_cu_seqlens))
    if counts != (len(columns.micro_batches),) * 3:
        raise CompactError(f"samples, cu_seqlens: have {counts} values, not {len(columns.micro_batches)}")
    if sum(columns.samples) != len(columns.sample_id):
        raise CompactError(f"samples: {sum(columns.samples)}, not {len(columns.sample_id)}")
    first = 0
    for micro_batch, count, source, target in zip(
        columns.micro_batches, columns.samples, columns.source_cu_seqlens, columns.target_cu_seqlens
    ):
        added = response.micro_batches.add()
        added.CopyFrom(micro_batch)
        added.samples[:] = range(first, first + count)
        samples = response.samples[first : first + count]
        for kind, lengths in ((source, added.source_cu_seqlens), (target, added.target_cu_seqlens)):
            if kind != compact_pb2.CUMULATIVE_LENGTHS_UNSPECIFIED:
                lengths[:] = _cumulative(samples, kind)
        first += count


def _read_samples(
    columns: compact_pb2.MicroBatchColumns, response: planner_service_pb2.StreamProgramsResponse
) -> None:
    count = len(columns.sample_id)
    for name in ("input_tokens", "target_tokens", "task", "has_loss_weight"):
        values = getattr(columns, name)
        if len(values) != count and (values or name in ("input_tokens", "target_tokens")):
            raise CompactError(f"{name}: has {len(values)} values, not {count}")
    if len(columns.loss_weight) != sum(1 for has in columns.has_loss_weight if has):
        raise CompactError("loss_weight: not those that has_loss_weight says")
    number, weights = 0, iter(columns.loss_weight)
    for place, difference in enumerate(columns.sample_id):
        number = (number + difference) % 2**64
        sample = response.samples.add(
            sample_id=number, input_tokens=columns.input_tokens[place], target_tokens=columns.target_tokens[place]
        )
        if columns.task:
            sample.task = columns.task[place]
        if columns.has_loss_weight and columns.has_loss_weight[place]:
            sample.loss_weight = next(weights)


def _cumulative(samples: Sequence[plan_pb2.Sample], kind: int) -> list[int]:
    lengths = [0]
    for sample in samples:
        inputs = sample.input_tokens if kind != compact_pb2.CUMULATIVE_LENGTHS_OF_TARGETS else 0
        targets = sample.target_tokens if kind != compact_pb2.CUMULATIVE_LENGTHS_OF_INPUTS else 0
        lengths.append((lengths[-1] + inputs + targets) % 2**32)
    return lengths
