"""What the ranks of a stage group exchange inside passes (execution.md, section 7)."""

from dataclasses import dataclass

from context_exchange import ContextExchange
from expert_exchange import ExpertExchange
from memory_units import ELEMENT_BYTES
from nodes import Nodes

NAMES = (
    "tensor_bytes",
    "tensor_ns",
    "context_sent_bytes",
    "context_received_bytes",
    "context_ns",
    "context_exposed_ns",
    "expert_bytes",
    "expert_ns",
    "expert_exposed_ns",
    "products_beside_return",
    "products_beside_arrival",
    "others_beside_arrival",
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
    expert_exposed_ns: int = 0
    products_beside_return: int = 0
    products_beside_arrival: int = 0
    others_beside_arrival: bool = False

    @property
    def added_ns(self):
        """What a pass takes longer for it."""
        return self.tensor_ns + self.context_exposed_ns + self.expert_exposed_ns

    @property
    def is_empty(self):
        return not any(getattr(self, name) for name in NAMES)


class Exchanges:
    """Of a mesh of a plan. `costs` are those of its profile for this mesh."""

    def __init__(self, reading, pipeline, costs):
        self._pipeline = pipeline
        self._model = reading.plan.model
        self._costs = costs
        self._element = ELEMENT_BYTES[reading.dtype]
        nodes = Nodes(pipeline, costs.profile.cluster.gpus_per_node)
        self._tensors_inside = nodes.hold_each(pipeline.tensors)
        self._context = ContextExchange(reading, pipeline, costs, nodes)
        self._experts = ExpertExchange(reading, pipeline, costs, nodes, self._context, self._half_ns) if pipeline.experts > 1 else None

    @property
    def experts(self):
        """ExpertExchange; None: no ranks divide experts."""
        return self._experts

    def key_value_bytes(self):
        """Keys and values of a token in one layer of one rank."""
        return self._context.key_value_bytes()

    def beside_ns(self, stage, share):
        """What backward passes make of products for weights beside their exchanges."""
        return self._experts.beside_ns(stage, share) if self._experts else 0

    def _half(self, tokens):
        """(bytes, nanoseconds) of a gather or a scatter over the tensor ranks."""
        tensors = self._pipeline.tensors
        sent = tokens * self._model.hidden * self._element * (tensors - 1) // tensors
        return sent, self._costs.collective_ns(sent, self._tensors_inside, tensors)

    def _half_ns(self, sums):
        """Of target tokens."""
        return 0 if self._pipeline.tensors == 1 else self._half(sums.target_tokens)[1]

    def _divided_parts(self):
        return 1 if self._costs.feeds_own_tokens else 2

    def _tensor(self, stage, share, forward, levels):
        if self._pipeline.tensors == 1:
            return 0, 0
        of_parts = [self._tensor_of_part(stage, part.sums, forward, levels) for part in share.in_pass(forward)]
        return tuple(sum(numbers) for numbers in zip(*of_parts))

    def _tensor_of_part(self, stage, sums, forward, levels):
        is_t5 = self._pipeline.is_t5
        encoders, decoders, dense = (stage.layers(kind) for kind in ("encoder", "decoder", "dense"))
        full_encoders, full_decoders, full_dense = (levels[kind]["full"] for kind in ("encoder", "decoder", "dense"))
        parts = self._divided_parts()
        if forward:
            source = 4 * encoders + (decoders if is_t5 else 0)
            target = (6 if is_t5 else 2 * parts) * decoders + 4 * dense
        else:
            source = 6 * encoders + 4 * full_encoders + (2 * decoders + full_decoders if is_t5 else 0)
            of_gpt = 3 * parts * decoders + 2 * parts * full_decoders + 6 * dense + 4 * full_dense
            target = 9 * decoders + 6 * full_decoders if is_t5 else of_gpt
        counts = [
            (source + stage.embeds_source, sums.source_tokens),
            (target + stage.embeds_target + (2 if forward and stage.is_last else 0), sums.target_tokens),
        ]
        halves = [(count, self._half(tokens)) for count, tokens in counts]
        return sum(count * half[0] for count, half in halves), sum(count * half[1] for count, half in halves)

    def of_pass(self, op, stage, share, recompute):
        """PassExchange of a pass of the rank with this share."""
        if self._pipeline.group_size == 1 or op == "BACKWARD_WEIGHT":
            return PassExchange()
        forward = op == "FORWARD"
        levels = stage.levels(recompute)
        tensor = self._tensor(stage, share, forward, levels)
        context = self._context.of_pass(stage, share, forward, levels)
        experts = self._experts.of_pass(stage, share, forward, recompute) if self._experts else {}
        return PassExchange(*tensor, **context, **experts)
