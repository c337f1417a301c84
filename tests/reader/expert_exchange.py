"""Rows on their way to ranks that divide the experts, and what is made beside them (execution.md, section 7)."""

import math

from costs import GATED, LEVELS, ROW_NUMBER_BYTES
from memory_units import ELEMENT_BYTES
from turns import DensePartLayer, PartLayer, backward_pass, forward_pass, waiting_ns


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
        return layers * self._on_return + (layers - 1) * self._on_arrival if layers else 0

    def hidden_ns(self, layers, kept):
        """What the exchanges of a backward pass take less; `kept`: its layers that are not recomputed."""
        both = [min(self._exchange_ns, made) for made in (self._on_return, self._on_arrival)]
        return math.floor(self._overlap * (layers * both[0] + max(0, kept - 1) * both[1]))


class ExpertExchange:
    """Of a mesh of a plan whose ranks divide experts. `context`: what its context ranks exchange."""

    def __init__(self, reading, pipeline, costs, nodes, context, half_ns):
        # Of a gather or a scatter of target tokens; a layer makes twice as many forward and three times as many backward as it has
        # divided parts.
        self._half_ns = half_ns
        self._divided_parts = 1 if costs.feeds_own_tokens else 2
        self._pipeline = pipeline
        self._model = reading.plan.model
        self._costs = costs
        self._element = ELEMENT_BYTES[reading.dtype]
        self._inside = nodes.hold_each(pipeline.experts)
        self._context = context
        self._overlap = costs.profile.cluster.exchange_overlap

    def _rows(self, sums, number_bytes):
        """(bytes, nanoseconds) of rows on their way to experts on other ranks, or back."""
        experts, tensors = self._pipeline.experts, self._pipeline.tensors
        row_bytes = self._model.hidden * self._element + number_bytes
        sent = sums.target_tokens * self._model.experts_per_token * row_bytes * (experts - 1) // (experts * tensors)
        return sent, self._costs.collective_ns(math.floor(sent * self._costs.fullest), self._inside, experts)

    def of_pass(self, stage, share, forward, recompute):
        """The fields of experts of a pass."""
        levels = stage.levels(recompute)
        all_rows = [self._rows_of_pass(stage, part.sums, forward, levels) for part in share.in_pass(forward)]
        sent, time = (sum(numbers) for numbers in zip(*all_rows))
        fields = {"expert_bytes": sent, "expert_ns": time, "expert_exposed_ns": time}
        if share.goes_in_parts(forward):
            fields["expert_exposed_ns"] -= math.floor(self._overlap * (time - self._waiting_ns(stage, share, forward, recompute)))
            return fields
        with_experts = stage.layers("decoder")
        beside = self._products_beside(share.sums) if with_experts and not forward else None
        if beside:
            fields["expert_exposed_ns"] -= beside.hidden_ns(with_experts, levels["decoder"]["none"])
            fields.update(beside.fields)
        return fields

    def _rows_of_pass(self, stage, sums, forward, levels):
        """(bytes, nanoseconds) of all rows of a share."""
        layers, again = stage.layers("decoder"), levels["decoder"]["full"]
        if forward:
            counts = [(2 * layers, self._rows(sums, 0))]
        else:
            counts = [(2 * layers, self._rows(sums, ROW_NUMBER_BYTES)), (2 * again, self._rows(sums, 0))]
        return [sum(count * rows[place] for count, rows in counts) for place in range(2)]

    def beside_ns(self, stage, share):
        """What backward passes make of products for weights while rows travel, and BACKWARD_WEIGHT need not."""
        layers = stage.layers("decoder")
        if share.goes_in_parts(forward=False):
            return layers * sum(self._experts_ns(part.sums) for part in share.parts)
        beside = self._products_beside(share.sums)
        return beside.taken_ns(layers) if beside else 0

    def _experts_ns(self, sums):
        """Of a layer's products for weights those of the rank's experts."""
        of_experts, _ = self._costs.layer_products(sums)
        return math.floor(of_experts)

    def _products_beside(self, sums):
        """ProductsBeside of a layer for a share of tokens that is not in parts; None: nothing is made beside exchanges."""
        of_experts, of_all = self._costs.layer_products(sums)
        if not self._overlap or of_experts <= 0:
            return None
        matrices = 3 if self._model.feed_forward in GATED else 2
        products = matrices * self._model.experts // self._pipeline.experts
        return ProductsBeside(of_experts, of_all, products, self._rows(sums, ROW_NUMBER_BYTES)[1], self._overlap)

    def _waiting_ns(self, stage, share, forward, recompute):
        """What a rank waits for rows that goes through a micro-batch in parts."""
        return waiting_ns(self.part_passes(stage, share, forward, recompute))

    def part_passes(self, stage, share, forward, recompute):
        """The PartPass of each part through which a pass goes."""
        makers = {"decoder": self._part_layer, "dense": self._dense_part_layer}
        kinds = set(stage.kinds)
        parts = [{kind: makers[kind](part) for kind in kinds} for part in share.in_pass(forward)]
        if forward:
            return [forward_pass(layer_of, stage.kinds) for layer_of in parts]
        return [backward_pass(layer_of, stage.levels_upwards(recompute)) for layer_of in parts]

    def _dense_part_layer(self, part):
        times = self._costs.times("dense", part.sums)
        keys_and_values = self._context.layer(part)
        half_ns = self._half_ns(part.sums)
        return DensePartLayer(
            forward=math.floor(times.forward),
            backward={level: math.floor(times.backward[level]) for level in LEVELS},
            weights=math.floor(times.weight),
            tensor=4 * half_ns,
            tensor_backward=6 * half_ns,
            exposed=keys_and_values.exposed,
            exposed_backward=keys_and_values.exposed_backward,
        )

    def _part_layer(self, part):
        times = self._costs.times("decoder", part.sums)
        _, weights = self._costs.layer_products(part.sums)
        keys_and_values = self._context.layer(part)
        return PartLayer(
            forward=math.floor(times.forward),
            backward={level: math.floor(times.backward[level]) for level in LEVELS},
            weights=math.floor(weights),
            experts=self._experts_ns(part.sums),
            rows_ns=self._rows(part.sums, 0)[1],
            gradients_ns=self._rows(part.sums, ROW_NUMBER_BYTES)[1],
            tensor=2 * self._divided_parts * self._half_ns(part.sums),
            tensor_backward=3 * self._divided_parts * self._half_ns(part.sums),
            exposed=keys_and_values.exposed,
            exposed_backward=keys_and_values.exposed_backward,
        )
