"""Keys and values that the context ranks of a stage group exchange (execution.md, section 7)."""

from dataclasses import dataclass

from costs import LEVELS, round_half_up
from memory_units import ELEMENT_BYTES


@dataclass(frozen=True)
class ContextLayer:
    """Of one layer, nanoseconds: what it takes forward, and what attention does not hide of it. Backward it takes twice as long."""

    forward: int
    exposed: int
    exposed_backward: dict  # by level


class ContextExchange:
    """Of a mesh of a plan."""

    def __init__(self, reading, pipeline, costs, nodes):
        self._pipeline = pipeline
        self._model = reading.plan.model
        self._costs = costs
        self._element = ELEMENT_BYTES[reading.dtype]
        self._nodes = nodes

    def key_value_bytes(self):
        """Keys and values of a token in one layer of one rank."""
        model = self._model
        heads = model.key_value_heads or model.heads
        width = (model.attention_inner or model.hidden) // model.heads
        return 2 * -(-heads // self._pipeline.tensors) * width * self._element

    def layer(self, share):
        """ContextLayer of the rows of a share."""
        layer_ns = self._layer_ns(share)
        hides = bool(share.sent) and self._costs.profile.cluster.attention_hides_exchange
        attention = self._costs.attention_ns(share.divided_squares, share.sums.target_tokens) if hides else 0.0
        backward = {
            level: max(0, 2 * layer_ns - round_half_up(attention * self._costs.ratio("decoder", level))) for level in LEVELS
        }
        return ContextLayer(layer_ns, max(0, layer_ns - round_half_up(attention)), backward)

    def _layer_ns(self, share):
        tensors, tokens = self._pipeline.tensors, {}
        for (first, ranks), sent in share.sent.items():
            of_link = tokens.setdefault(self._nodes.hold(first * tensors, ranks * tensors), [0, 0])
            of_link[0] += sent
            of_link[1] += share.received[(first, ranks)]
        each = self.key_value_bytes()
        return sum(
            self._costs.collective_ns(max(both) * each, inside, self._pipeline.contexts)
            for inside, both in tokens.items()
            if sum(both) > 0
        )

    def of_pass(self, stage, share, forward, levels):
        """The fields of context ranks; of a micro-batch in parts what each takes alone."""
        layers = stage.layer_count
        each = self.key_value_bytes()
        sent, received = sum(share.sent.values()) * each, sum(share.received.values()) * each
        of_parts = [self.layer(part) for part in share.in_pass(forward)]
        layer_ns = layers * sum(part.forward for part in of_parts)
        if forward:
            exposed = layers * sum(part.exposed for part in of_parts)
            return self._fields(layers * sent, layers * received, layer_ns, exposed)
        counts = {level: levels["decoder"][level] + levels["dense"][level] for level in LEVELS}
        exposed = sum(counts[level] * part.exposed_backward[level] for part in of_parts for level in LEVELS)
        both = layers * (sent + received)
        return self._fields(both, both, 2 * layer_ns, exposed)

    @staticmethod
    def _fields(sent, received, time, exposed):
        return {
            "context_sent_bytes": sent,
            "context_received_bytes": received,
            "context_ns": time,
            "context_exposed_ns": exposed,
        }
