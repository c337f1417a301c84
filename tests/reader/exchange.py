"""What the ranks of a stage group exchange inside passes (execution.md, section 7)."""

from dataclasses import dataclass

from costs import LEVELS, ROW_NUMBER_BYTES, round_half_up
from memory_units import ELEMENT_BYTES

NAMES = (
    "tensor_bytes",
    "tensor_ns",
    "context_sent_bytes",
    "context_received_bytes",
    "context_ns",
    "context_exposed_ns",
    "expert_bytes",
    "expert_ns",
)


@dataclass(frozen=True)
class PassExchange:
    tensor_bytes: int = 0
    tensor_ns: int = 0
    context_sent_bytes: int = 0
    context_received_bytes: int = 0
    context_ns: int = 0
    context_exposed_ns: int = 0
    expert_bytes: int = 0
    expert_ns: int = 0

    @property
    def added_ns(self):
        """What a pass takes longer for it."""
        return self.tensor_ns + self.context_exposed_ns + self.expert_ns

    @property
    def is_empty(self):
        return not any(getattr(self, name) for name in NAMES)


class Exchanges:
    """Of a plan. `costs` are those of its profile."""

    def __init__(self, reading, costs):
        self._pipeline = reading.pipeline
        self._model = reading.plan.model
        self._costs = costs
        self._element = ELEMENT_BYTES[reading.dtype]
        self._same_node = {}
        tensors = self._pipeline.tensors
        self._tensors_inside = all(
            self._on_one_node(group[first : first + tensors])
            for group in self._pipeline.stage_groups()
            for first in range(0, len(group), tensors)
        )

        experts = self._pipeline.experts
        self._experts_inside = all(
            self._on_one_node(group[first : first + experts])
            for group in self._pipeline.stage_groups()
            for first in range(0, len(group), experts)
        )

    def _on_one_node(self, ranks):
        node = self._costs.profile.cluster.gpus_per_node
        return len({rank // node for rank in ranks}) == 1

    def _is_inside(self, span):
        """Whether the context ranks of a span are on one node in every stage group."""
        if span not in self._same_node:
            first, count = (number * self._pipeline.tensors for number in span)
            groups = self._pipeline.stage_groups()
            self._same_node[span] = all(self._on_one_node(group[first : first + count]) for group in groups)
        return self._same_node[span]

    def key_value_bytes(self):
        """Keys and values of a token in one layer of one rank."""
        model = self._model
        heads = model.key_value_heads or model.heads
        width = (model.attention_inner or model.hidden) // model.heads
        return 2 * -(-heads // self._pipeline.tensors) * width * self._element

    def _half(self, tokens):
        """(bytes, nanoseconds) of a gather or a scatter over the tensor ranks."""
        tensors = self._pipeline.tensors
        sent = tokens * self._model.hidden * self._element * (tensors - 1) // tensors
        return sent, self._costs.collective_ns(sent, self._tensors_inside)

    def _tensor(self, stage, sums, forward, levels):
        if self._pipeline.tensors == 1:
            return 0, 0
        is_t5 = self._pipeline.is_t5
        encoders, decoders = stage.encoder_layers, stage.decoder_layers
        full_encoders = levels["encoder"]["full"]
        full_decoders = levels["decoder"]["full"]
        parts = 1 if self._pipeline.experts > 1 else 2
        if forward:
            source = 4 * encoders + (decoders if is_t5 else 0)
            target = (6 if is_t5 else 2 * parts) * decoders
        else:
            source = 6 * encoders + 4 * full_encoders + (2 * decoders + full_decoders if is_t5 else 0)
            of_gpt = 3 * parts * decoders + 2 * parts * full_decoders
            target = 9 * decoders + 6 * full_decoders if is_t5 else of_gpt
        counts = [
            (source + stage.embeds_source, sums.source_tokens),
            (target + stage.embeds_target + (2 if forward and stage.is_last else 0), sums.target_tokens),
        ]
        halves = [(count, self._half(tokens)) for count, tokens in counts]
        return sum(count * half[0] for count, half in halves), sum(count * half[1] for count, half in halves)

    def _experts(self, stage, sums, forward, levels):
        """(bytes, nanoseconds) of rows on their way to experts on other ranks and back."""
        experts, tensors = self._pipeline.experts, self._pipeline.tensors
        if experts == 1:
            return 0, 0

        def rows(row_bytes):
            rows_bytes = sums.target_tokens * self._model.experts_per_token * row_bytes
            sent = rows_bytes * (experts - 1) // (experts * tensors)
            return sent, self._costs.collective_ns(sent, self._experts_inside)

        row = self._model.hidden * self._element
        layers = stage.decoder_layers
        if forward:
            counts = [(2 * layers, rows(row))]
        else:
            counts = [(2 * layers, rows(row + ROW_NUMBER_BYTES)), (2 * levels["decoder"]["full"], rows(row))]
        return sum(count * half[0] for count, half in counts), sum(count * half[1] for count, half in counts)

    def _context_ns(self, share):
        """Of one layer of a forward pass."""
        tokens = {}
        for span, sent in share.sent.items():
            of_link = tokens.setdefault(self._is_inside(span), [0, 0])
            of_link[0] += sent
            of_link[1] += share.received[span]
        each = self.key_value_bytes()
        return sum(
            self._costs.collective_ns(max(both) * each, inside) for inside, both in tokens.items() if sum(both) > 0
        )

    def of_pass(self, op, stage, share, recompute):
        """PassExchange of a pass of the rank with this share."""
        if self._pipeline.group_size == 1 or op == "BACKWARD_WEIGHT":
            return PassExchange()
        forward = op == "FORWARD"
        levels = stage.levels(recompute)
        tensor_bytes, tensor_ns = self._tensor(stage, share.sums, forward, levels)
        of_experts = self._experts(stage, share.sums, forward, levels)
        layers = stage.encoder_layers + stage.decoder_layers
        each = self.key_value_bytes()
        sent, received = sum(share.sent.values()) * each, sum(share.received.values()) * each
        layer_ns = self._context_ns(share)
        hides = bool(share.sent) and self._costs.profile.cluster.attention_hides_exchange
        attention = self._costs.attention_ns(share.divided_squares, share.sums.target_tokens) if hides else 0.0
        if forward:
            exposed = layers * max(0, layer_ns - round_half_up(attention))
            return PassExchange(tensor_bytes, tensor_ns, layers * sent, layers * received, layers * layer_ns, exposed, *of_experts)
        exposed = sum(
            levels["decoder"][level] * max(0, 2 * layer_ns - round_half_up(attention * self._costs.ratio("decoder", level)))
            for level in LEVELS
        )
        both = layers * (sent + received)
        return PassExchange(tensor_bytes, tensor_ns, both, both, 2 * layers * layer_ns, exposed, *of_experts)
