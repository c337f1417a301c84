"""Bytes that instructions take and give back, and the largest account of a rank (execution.md, section 8)."""

from dataclasses import dataclass

from costs import LEVELS, round_half_up
from durations import adapter_bytes, own_expert_bytes, own_parameter_bytes
from memory_units import TOKEN_BYTES
from order import certainly_before


def static_bytes(costs, pipeline, stages, shard_optimizer_state):
    """Weights, gradients and optimizer state of a rank."""

    def state(ranks):
        whole, sharded = costs.profile.state_bytes_per_parameter_byte, costs.profile.sharded_state_bytes_per_parameter_byte
        return whole - (sharded - sharded / ranks) if shard_optimizer_state else whole

    common, experts = state(pipeline.ranks_of_same_parameters), state(pipeline.ranks_of_same_experts)
    if costs.adapters is not None:
        return sum(round_half_up(own_parameter_bytes(costs, stage) + adapter_bytes(costs, stage) * common) for stage in stages)
    return sum(
        round_half_up(own_parameter_bytes(costs, stage) * common + own_expert_bytes(costs, stage) * experts)
        for stage in stages
    )


def static_bytes_with_share(costs, stages, bytes_of_share):
    """Weights and gradients of the stages, and all of the rank's share, which is so many bytes of parameters."""
    whole, sharded = costs.profile.state_bytes_per_parameter_byte, costs.profile.sharded_state_bytes_per_parameter_byte
    of_stages = [
        round_half_up((own_parameter_bytes(costs, stage) + own_expert_bytes(costs, stage)) * (whole - sharded)) for stage in stages
    ]
    return sum(of_stages) + round_half_up(bytes_of_share * whole)


def boundary_shape(is_packed, hidden, stage, sums, is_t5):
    """Shape of what crosses the boundary after a stage, elements."""
    if is_t5 and not stage.encoder_boundary_after:
        return [(sums.source_tokens + sums.target_tokens) * hidden]
    length, tokens = (sums.source_length, sums.source_tokens) if is_t5 else (sums.target_length, sums.target_tokens)
    return [tokens, hidden] if is_packed else [sums.rows, length, hidden]


@dataclass(frozen=True)
class StageBytes:
    """Bytes of a micro-batch on a stage."""

    stored: int
    kept: int
    # While one layer or the head runs: the most of all; of a backward pass at its levels, and of one that puts products for
    # weights aside; of the head, with what it gathers.
    peak: int
    backward: int
    input_backward: int
    running_head: int
    output: int
    input: int
    tokens: int
    # Of stage groups: what is gathered over tensor ranks, and keys and values of divided rows.
    gathered: int = 0
    keys: int = 0
    # Rows for experts that ranks divide.
    rows: int = 0
    # Keys and values of rows that are cut, from one part to the next.
    carried: int = 0

    def _with_exchanged(self, layers):
        attending = layers + 2 * self.keys
        if self.rows > 0:
            return attending + self.gathered + 3 * self.rows
        return max(attending, layers // 2 + self.gathered)

    def _passing(self, forward_only):
        exchanged = self.gathered + self.keys + self.carried + 3 * self.rows
        return max(exchanged, self._with_exchanged(self.peak) if forward_only else self.running_head)

    def taken(self, op, part, forward_only=False):
        """Bytes that an instruction takes when it starts."""
        stored = 0 if forward_only else self.stored
        return {
            "LOAD": self.tokens,
            "FORWARD": stored + self._passing(forward_only) + self.output,
            "RECV": self.input if part == 0 else self.output,
            "BACKWARD": self._with_exchanged(self.backward) + self.input,
            "BACKWARD_INPUT": self._with_exchanged(self.input_backward) + self.input + max(0, self.kept - self.stored),
        }.get(op, 0)

    def given_back(self, op, part, forward_only=False):
        """Bytes that an instruction gives back when it ends."""
        given_back = self.stored + self.input + self.output
        put_aside = max(0, self.stored - self.kept) + self.input + self.output
        return {
            "FREE": (self.output, self.input, self.tokens)[part] if op == "FREE" else 0,
            "FORWARD": self._passing(forward_only) + (self.input if forward_only else 0),
            "BACKWARD": self._with_exchanged(self.backward) + given_back,
            "BACKWARD_INPUT": self._with_exchanged(self.input_backward) + put_aside,
            "BACKWARD_WEIGHT": self.kept,
        }.get(op, 0)


def _gathered_operands(stage, sums, is_t5, feeds_own_tokens, tensors, token_bytes):
    """What BACKWARD_INPUT puts aside of inputs and output gradients that it gathered over tensor ranks, beyond its own rows."""
    source, target = (tokens - tokens // tensors for tokens in (sums.source_tokens, sums.target_tokens))
    of_decoder = 6 * target + sums.source_tokens if is_t5 else (2 if feeds_own_tokens else 4) * target
    of_dense = stage.layers("dense") * 4 * target
    return token_bytes * (stage.encoder_layers * 4 * source + stage.layers("decoder") * of_decoder + of_dense)


def _peaks(costs, kind, sums):
    """What exists while a layer runs backward, by level, and where it puts products for weights aside."""
    largest = costs.peak(kind, sums)
    stored = {level: costs.stored_of_layer(kind, level, sums) for level in LEVELS}
    beside = {level: largest - (stored[level] - stored["full"]) for level in LEVELS}
    kept = min(largest, stored["none"])
    least = beside["none"] if costs.peak_has_gradients(kind) else kept
    of_split = costs.split_backward_peak(kind, sums)
    return {level: max(beside[level], least) for level in LEVELS}, max(beside["none"], kept if of_split is None else of_split)


def _backward_peak(costs, kind, counts, sums):
    """The most of any layer of a kind: those that keep more run first, and give back what they kept."""
    peaks, _ = _peaks(costs, kind, sums)
    most = given_back = 0
    for level in ("none", "selective", "full"):
        if counts[level] > 0:
            most = max(most, peaks[level] - given_back)
            given_back += counts[level] * costs.stored(kind, level, sums)
    return most


def stage_bytes(costs, stage, sums, recompute, crossing, transient, gathered_token_bytes):
    """StageBytes from what crosses the boundaries before and after the stage, what is gathered, and keys and values.

    gathered_token_bytes: of a token between layers, 0 with one tensor rank.
    """
    levels = stage.levels(recompute)
    stored = costs.kept_of_head(sums) if stage.is_last else 0
    is_t5 = "encoder" in costs.kinds
    kept = _gathered_operands(stage, sums, is_t5, costs.feeds_own_tokens, costs.tensors, gathered_token_bytes)
    head = costs.peak("head", sums) if stage.is_last else 0
    peak, backward, input_backward = head, 0, 0
    for kind in costs.kinds:
        if stage.layers(kind) == 0:
            continue
        stored += sum(levels[kind][level] * costs.stored(kind, level, sums) for level in LEVELS)
        kept += stage.layers(kind) * costs.stored(kind, "none", sums)
        peak = max(peak, costs.peak(kind, sums))
        backward = max(backward, _backward_peak(costs, kind, levels[kind], sums))
        input_backward = max(input_backward, _peaks(costs, kind, sums)[1])
    tokens = (sums.source_tokens if stage.embeds_source else 0) + (sums.target_tokens if stage.embeds_target else 0)
    tokens += sums.loss_positions if stage.is_last else 0
    running_head = head
    if stage.is_last and costs.tensors > 1:
        running_head = costs.logits(sums) + 4 * int(sums.target_tokens) * gathered_token_bytes
    passing = (peak, backward, input_backward, running_head)
    return StageBytes(stored, kept, *passing, crossing[1], crossing[0], TOKEN_BYTES * tokens, *transient)


def largest_account(program):
    """(bytes, id) of the largest account in the order of the program, and the account at its end."""
    account = largest = program.static_memory_bytes
    at = 0
    for instruction in program.instructions:
        account += instruction.memory_acquired_bytes
        if account > largest:
            largest, at = account, instruction.id
        account -= instruction.memory_released_bytes
    return largest, at, account


def largest_in_every_order(program, compute_stream):
    """(bytes, id): the most that the account can reach in any order that streams and deps allow, and at which instruction."""
    before = certainly_before(program)
    others = [instruction for instruction in program.instructions if instruction.stream != compute_stream]
    computed = program.static_memory_bytes
    largest, at = computed, 0
    for instruction in program.instructions:
        if instruction.stream != compute_stream:
            continue
        account = computed + instruction.memory_acquired_bytes
        for other in others:
            if not before.ends_before(instruction, other):
                account += other.memory_acquired_bytes
            if before.ends_before(other, instruction):
                account -= other.memory_released_bytes
        if account > largest:
            largest, at = account, instruction.id
        computed += instruction.memory_acquired_bytes - instruction.memory_released_bytes
    return largest, at
