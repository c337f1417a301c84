"""What the ranks of a stage group exchange inside passes (execution.md, section 7)."""

import math
from dataclasses import dataclass

from costs import GATED, LEVELS, ROW_NUMBER_BYTES, round_half_up
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


class ProductsBeside:
    """What a layer makes of its products for weights while gradients of rows travel."""

    def __init__(self, of_experts, of_all, products, exchange_ns, overlap):
        self._exchange_ns = exchange_ns
        self._overlap = overlap
        lasting = math.floor(exchange_ns * products / of_experts)
        on_return = min(lasting, products)
        on_arrival = min(lasting, products - on_return)
        self._on_return = math.floor(of_experts * on_return / products)
        self._on_arrival = math.floor(of_experts * (on_return + on_arrival) / products) - self._on_return
        with_others = math.floor(of_all) - self._on_return
        others = on_return + on_arrival == products and with_others <= exchange_ns
        if others:
            self._on_arrival = with_others
        self.fields = {"products_beside_return": on_return, "products_beside_arrival": on_arrival, "others_beside_arrival": others}

    def taken_ns(self, layers):
        """What BACKWARD_WEIGHT need not do."""
        return layers * self._on_return + (layers - 1) * self._on_arrival

    def hidden_ns(self, layers, kept):
        """What the exchanges of a backward pass take less; `kept`: its layers that are not recomputed."""
        both = [min(self._exchange_ns, made) for made in (self._on_return, self._on_arrival)]
        return math.floor(self._overlap * (layers * both[0] + max(0, kept - 1) * both[1]))


class Exchanges:
    """Of a mesh of a plan. `costs` are those of its profile for this mesh."""

    def __init__(self, reading, pipeline, costs):
        self._pipeline = pipeline
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
        """Whether the context ranks of a span are on one node in every stage group of the mesh."""
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
        parts = 1 if self._costs.feeds_own_tokens else 2
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

    def _rows(self, sums, number_bytes):
        """(bytes, nanoseconds) of rows on their way to experts on other ranks, or back."""
        experts, tensors = self._pipeline.experts, self._pipeline.tensors
        row_bytes = self._model.hidden * self._element + number_bytes
        sent = sums.target_tokens * self._model.experts_per_token * row_bytes * (experts - 1) // (experts * tensors)
        return sent, self._costs.collective_ns(sent, self._experts_inside)

    def _experts(self, stage, sums, forward, levels):
        """The fields of experts of a pass."""
        if self._pipeline.experts == 1:
            return {}
        layers = stage.decoder_layers
        if forward:
            counts = [(2 * layers, self._rows(sums, 0))]
        else:
            again = levels["decoder"]["full"]
            counts = [(2 * layers, self._rows(sums, ROW_NUMBER_BYTES)), (2 * again, self._rows(sums, 0))]
        sent, time = (sum(count * half[place] for count, half in counts) for place in range(2))
        fields = {"expert_bytes": sent, "expert_ns": time, "expert_exposed_ns": time}
        beside = None if forward else self.products_beside(sums)
        if beside:
            fields["expert_exposed_ns"] -= beside.hidden_ns(layers, levels["decoder"]["none"])
            fields.update(beside.fields)
        return fields

    def products_beside(self, sums):
        """ProductsBeside of a layer for a share of tokens; None: nothing is made beside exchanges."""
        overlap = self._costs.profile.cluster.exchange_overlap
        if self._pipeline.experts == 1 or not overlap:
            return None
        of_experts, of_all = self._costs.layer_products(sums)
        if of_experts <= 0:
            return None
        matrices = 3 if self._model.feed_forward in GATED else 2
        products = matrices * self._model.experts // self._pipeline.experts
        return ProductsBeside(of_experts, of_all, products, self._rows(sums, ROW_NUMBER_BYTES)[1], overlap)

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
            return PassExchange(tensor_bytes, tensor_ns, layers * sent, layers * received, layers * layer_ns, exposed, **of_experts)
        exposed = sum(
            levels["decoder"][level] * max(0, 2 * layer_ns - round_half_up(attention * self._costs.ratio("decoder", level)))
            for level in LEVELS
        )
        both = layers * (sent + received)
        return PassExchange(tensor_bytes, tensor_ns, both, both, 2 * layers * layer_ns, exposed, **of_experts)
