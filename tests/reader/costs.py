"""What a cost profile says of one micro-batch: times of layers and embeddings, bytes, links (execution.md, section 7)."""

import math
from dataclasses import dataclass

LEVELS = ("none", "selective", "full")
NANOSECONDS_PER_MILLISECOND = 1e6
# Feed-forward parts with three matrices (FEED_FORWARD_GATED_GELU, FEED_FORWARD_GATED_SILU), and what goes with the gradient
# of a row.
GATED = (3, 4)
ROW_NUMBER_BYTES = 16


class NoCost(Exception):
    """The profile has no cost for what the plan does."""


def round_half_up(value):
    """Round(x) of the contract: the nearest whole number, halves up."""
    return math.floor(value + 0.5)


def efficiency(time, tokens):
    """e(t): what the table of a LayerTime says for so many tokens, 1 without one."""
    points = time.efficiency
    if not points:
        return 1.0
    if tokens <= points[0].tokens:
        return points[0].factor
    for low, high in zip(points, points[1:]):
        if tokens < high.tokens:
            return low.factor + (tokens - low.tokens) / (high.tokens - low.tokens) * (high.factor - low.factor)
    return points[-1].factor


def closed_form(time, source_tokens, source_squares, target_tokens, target_squares, products, packed_rows, calls=(0, 0), divided=0):
    """T(ts, S2, tu, U2, X, p, W2, V2, D) with the numbers of a LayerTime; nanoseconds, not rounded. `calls`: W2 and V2; `divided`: D."""
    result = time.fixed_ns
    if target_tokens > 0:
        work = time.target_token_ns * target_tokens * efficiency(time, target_tokens) + time.target_square_ns * target_squares + time.cross_ns * products
        result += work * (1 + time.half_efficiency_tokens / target_tokens)
    if source_tokens > 0:
        work = time.source_token_ns * source_tokens * efficiency(time, source_tokens) + time.source_square_ns * source_squares
        result += work * (1 + time.half_efficiency_tokens / source_tokens)
    result += time.packed_row_ns * packed_rows
    result += time.target_call_square_ns * calls[1]
    result += time.source_call_square_ns * calls[0]
    return result + time.divided_row_ns * divided


@dataclass(frozen=True)
class PassTimes:
    """Times of one layer for one micro-batch, nanoseconds, not rounded."""

    forward: float
    backward: dict  # by level
    weight: float  # of a backward pass, what makes gradients of weights

    def __add__(self, other):
        """Of two parts of a micro-batch, one after the other."""
        backward = {level: time + other.backward[level] for level, time in self.backward.items()}
        return PassTimes(self.forward + other.forward, backward, self.weight + other.weight)


class LayerTimes:
    """Times of one kind of layer. `axes` names the axes that its tables have."""

    def __init__(self, layer, grid, axes, tensors, contexts, experts, loaded=1.0):
        self._layer = layer
        # By what an uneven router multiplies what depends on tokens.
        self._loaded = loaded
        self._form, self._form_divisor, self._table_divisor = self._with_load(layer.forward), 1, 1
        self._tables_count = contexts == 1
        if tensors > 1 or experts > 1:
            self._divide(tensors, experts)
        self._axes = [list(getattr(grid, axis)) if grid else [] for axis in axes]
        self._axis_names = axes
        full = layer.backward_ratio_full if layer.backward_ratio_full != 0 else layer.backward_ratio_none + 1
        self._ratios = dict(zip(LEVELS, (layer.backward_ratio_none, layer.backward_ratio_selective, full)))
        tables = (layer.backward_none_ms, layer.backward_selective_ms, layer.backward_full_ms)
        self._backward_tables = dict(zip(LEVELS, (table.values if table else [] for table in tables)))
        self._forward_table = layer.forward_ms.values if layer.forward_ms else []

    def _divide(self, tensors, experts):
        """Over tensor ranks, and ranks that divide the experts: as the layer's TensorCost says."""
        of_degree = {cost.expert or 1: cost for cost in self._layer.tensor if cost.degree == tensors}
        found = [of_degree[expert] for expert in (experts, 1) if expert in of_degree]
        if not found and tensors == 1:
            return
        if not found:
            raise NoCost(f"layer '{self._layer.name}' has no figures for {tensors} tensor ranks")
        self._table_divisor = found[0].degree * found[0].efficiency
        if found[0].forward is not None:
            self._form = self._with_load(found[0].forward)
        else:
            self._form_divisor = self._table_divisor

    def _with_load(self, form):
        return form and form.with_fields(target_token_ns=form.target_token_ns * self._loaded)

    def ratio(self, level):
        return self._ratios[level]

    def attention_ns(self, squares, tokens):
        """What attention to so many squared tokens takes of a forward pass of `tokens`, not rounded."""
        if tokens == 0:
            return 0.0
        form = self._form
        return form.target_square_ns * squares * (1 + form.half_efficiency_tokens / tokens) / self._form_divisor

    def times(self, sums):
        """PassTimes of a micro-batch. Raises NoCost."""
        rectangle = self._rectangle(sums)
        use_table = sums.rectangle and self._tables_count and len(self._forward_table) > 0
        if use_table:
            from_table = self._at(self._places(rectangle, extend_below=self._layer.forward is None))
            if from_table:
                return from_table
        if self._layer.forward is None:
            raise NoCost(f"layer '{self._layer.name}' has no time for {sums}")
        forward = self._closed_form(sums)
        if self._layer.backward_input is not None:
            return self._with_forms_of_its_own(forward, sums)
        times = self._passes(forward, {level: forward * self._ratios[level] for level in LEVELS})
        return self._raised_to_border(times, rectangle) if use_table else times

    def _passes(self, forward, backward):
        return PassTimes(forward, backward, backward["none"] * (1 - self._layer.backward_input_share))

    def _with_forms_of_its_own(self, forward, sums):
        """Where the two parts of the backward pass have closed forms."""
        inputs = self._undivided(self._with_load(self._layer.backward_input), sums) / self._table_divisor
        weight = self._undivided(self._with_load(self._layer.backward_weight), sums) / self._table_divisor
        more = {level: forward * (self._ratios[level] - self._ratios["none"]) for level in LEVELS}
        return PassTimes(forward, {level: inputs + weight + more[level] for level in LEVELS}, weight)

    def _rectangle(self, sums):
        lengths = {
            "micro_batch_size": sums.rows,
            "source_length": sums.source_length,
            "target_length": sums.target_length,
        }
        return [lengths[name] for name in self._axis_names]

    def _closed_form(self, sums):
        return self._undivided(self._form, sums) / self._form_divisor

    def _undivided(self, form, sums):
        if self._layer.loss_tokens_only:
            return closed_form(form, 0, 0, sums.loss_positions, 0, 0, 0)
        return closed_form(
            form,
            sums.source_tokens,
            sums.source_squares,
            sums.target_tokens,
            sums.target_squares,
            sums.products,
            sums.packed_rows,
            sums.call_squares,
            sums.divided_rows,
        )

    def _places(self, rectangle, extend_below):
        """For each axis (index of the last point not above, fraction of the way to the next); None if one is off the grid."""
        places = []
        for axis, value in zip(self._axes, rectangle):
            if not axis or value > axis[-1]:
                return None
            if value < axis[0]:
                if not extend_below:
                    return None
                places.append((0, 0.0))
                continue
            index = max(position for position, point in enumerate(axis) if point <= value)
            fraction = 0.0
            if index + 1 < len(axis):
                fraction = (value - axis[index]) / (axis[index + 1] - axis[index])
            places.append((index, fraction))
        return places

    def _at(self, places):
        """PassTimes of the tables at a place; None where the table of forward times has no value."""
        if places is None:
            return None
        forward = self._value(self._forward_table, places)
        if forward is None:
            return None
        backward = {}
        for level in LEVELS:
            value = self._value(self._backward_tables[level], places)
            backward[level] = (forward * self._ratios[level] if value is None else value) / self._table_divisor
        return self._passes(forward / self._table_divisor, backward)

    def _value(self, table, places):
        """A table's value at a place, nanoseconds; None if the table is empty or has a gap there."""
        if not table:
            return None

        def interpolate(depth, offset):
            if depth == len(places):
                return table[offset] * NANOSECONDS_PER_MILLISECOND * self._loaded
            index, fraction = places[depth]
            position = offset * len(self._axes[depth]) + index
            low = interpolate(depth + 1, position)
            if fraction == 0:
                return low
            high = interpolate(depth + 1, position + 1)
            return low + fraction * (high - low)

        value = interpolate(0, 0)
        return None if math.isnan(value) else value

    def _raised_to_border(self, times, rectangle):
        """Beyond the grid, at least what the grid says at its border."""
        forward, backward = times.forward, dict(times.backward)
        for position, axis in enumerate(self._axes):
            points = [point for point in axis if point <= rectangle[position]]
            if not points:
                continue
            border = list(rectangle)
            border[position] = points[-1]
            at_border = self._at(self._places(border, extend_below=False))
            if at_border:
                forward = max(forward, at_border.forward)
                backward = {level: max(backward[level], at_border.backward[level]) for level in LEVELS}
        return self._passes(forward, backward)


def _repeated_key_value_bytes(model, tensors, element):
    """What a tensor rank has of the keys and values of a token beyond 1/T of them: it has whole heads."""
    heads = model.key_value_heads or model.heads
    width = (model.attention_inner or model.hidden) // model.heads
    return 2 * (-(-heads // tensors) - heads / tensors) * width * element


def _expert_bytes(model, element):
    """Parameters of all experts of a layer."""
    matrices = 3 if model.feed_forward in GATED else 2
    return model.experts * matrices * model.hidden * model.ffn * element


def _expert_product_share(model):
    """Of the multiplications for the gradients of a layer's weights, those of experts."""
    matrices = 3 if model.feed_forward in GATED else 2
    of_experts = model.experts_per_token * matrices * model.ffn
    inner = model.attention_inner or model.hidden
    key_values = (model.key_value_heads or model.heads) * (inner // model.heads)
    of_shared = matrices * model.shared_expert_ffn + (1 if model.gated_shared_expert else 0)
    return of_experts / (of_experts + model.experts + of_shared + 2 * inner + 2 * key_values)


def _expert_kept_bytes(model, element):
    """What experts keep of the rows of one token."""
    matrices = 3 if model.feed_forward in GATED else 2
    return model.experts_per_token * (model.hidden + matrices * model.ffn) * element


# By LinearLayer: what an adapter has beside rows or columns of the residual stream.
QUERY, KEY, VALUE, OUTPUT = 1, 2, 3, 4


class Costs:
    """A profile as the planner uses it for one model."""

    def __init__(self, profile, model, is_t5, tensors=1, contexts=1, experts=1):
        self.tensors = tensors
        self.hidden = model.hidden
        self.expert_ranks = experts
        # Feed-forward parts see the rank's own tokens alone.
        self.feeds_own_tokens = experts > 1 and model.shared_expert_ffn == 0
        self.expert_layer_bytes = _expert_bytes(model, profile.bytes_per_element) if experts > 1 else 0
        self.row_bytes = (model.experts_per_token or 0) * (model.hidden * profile.bytes_per_element + ROW_NUMBER_BYTES)
        self.repeated = _repeated_key_value_bytes(model, tensors, profile.bytes_per_element)
        self.adapters = model.adapters
        self._model = model
        self.fullest = next((load.fullest for load in profile.expert_loads if load.ranks == experts and experts > 1), 1.0)
        share = _expert_product_share(model) if experts > 1 else 0.0
        loaded = 1 + share * (self.fullest - 1)
        self._expert_share = share * self.fullest / loaded
        self._kept_of_rows = (self.fullest - 1) * _expert_kept_bytes(model, profile.bytes_per_element) if experts > 1 else 0.0
        self.profile = profile
        self.is_t5 = is_t5
        self._by_name = {layer.name: layer for layer in profile.layers}
        rows, source, target = "micro_batch_size", "source_length", "target_length"
        axes = {"head": (rows, target)}
        if is_t5:
            axes.update(encoder=(rows, source), decoder=(rows, source, target))
        else:
            axes.update(decoder=(rows, target))
        if model.dense_layers:
            axes.update(dense=(rows, target))
        self.kinds = tuple(kind for kind in ("encoder", "decoder", "dense") if kind in axes)
        self._times = {
            kind: LayerTimes(self.layer(kind), profile.grid, names, tensors, contexts, experts, loaded if kind == "decoder" else 1.0)
            for kind, names in axes.items()
        }

    def layer(self, kind):
        """The LayerCost of a kind: "encoder", "decoder", "dense" or "head". A GPT's "layer" is its decoder."""
        name = "layer" if kind == "decoder" and not self.is_t5 else kind
        if name not in self._by_name:
            raise NoCost(f"the profile has no layer '{name}'")
        return self._by_name[name]

    def adapter_layer_bytes(self, kind):
        """of_layer: of the adapters of a layer of a kind on one tensor rank; the model has some."""
        model, tensors = self._model, self.tensors
        inner = model.attention_inner or model.hidden
        key_value = -(-(model.key_value_heads or model.heads) // tensors) * (inner // model.heads)
        others = {QUERY: inner // tensors, OUTPUT: inner // tensors, KEY: key_value, VALUE: key_value}
        width = 0
        for target in self.adapters.targets:
            times = 2 if self.is_t5 and kind == "decoder" and target in others else 1
            width += times * (model.hidden + others.get(target, model.ffn // tensors))
        return self.profile.bytes_per_element * self.adapters.rank * width

    def times(self, kind, sums):
        return self._times[kind].times(sums)

    def ratio(self, kind, level):
        return self._times[kind].ratio(level)

    def layer_products(self, sums):
        """(of experts, of all weights): products for the gradients of a GPT's layer, nanoseconds, not rounded."""
        of_all = self.times("decoder", sums).weight
        return of_all * self._expert_share, of_all

    def attention_ns(self, squares, tokens):
        """Of a GPT's layer."""
        return self._times["decoder"].attention_ns(squares, tokens)

    def source_embedding(self, sums):
        return self._embedding(sums.source_tokens, sums.source_squares, 0, 0)

    def target_embedding(self, sums):
        return self._embedding(0, 0, sums.target_tokens, sums.target_squares)

    def _embedding(self, source_tokens, source_squares, target_tokens, target_squares):
        time = self.profile.embedding_forward
        if time is None:
            return 0.0
        return closed_form(time, source_tokens, source_squares, target_tokens, target_squares, 0, 0)

    def layer_bytes(self, layer_bytes, sums, more=0.0, of_rows=0.0):
        """Bytes of a LayerBytes for a micro-batch, its target tokens having `of_rows` more each, before they are divided over tensor
        ranks, and `more` behind that; one that is not set takes none."""
        source = layer_bytes.source_token_bytes * sums.source_tokens if layer_bytes else 0.0
        target = ((layer_bytes.target_token_bytes if layer_bytes else 0.0) + of_rows) * sums.target_tokens
        return round_half_up((source + target) / self.tensors + more * sums.target_tokens)

    def stored_of_layer(self, kind, level, sums):
        """What a layer keeps, without rows for experts."""
        repeated = self.repeated if kind != "encoder" and level != "full" else 0.0
        of_rows = self._kept_of_rows if kind == "decoder" and level != "full" else 0.0
        return self.layer_bytes(getattr(self.layer(kind), f"stored_{level}"), sums, repeated, of_rows)

    def stored(self, kind, level, sums):
        stored = self.stored_of_layer(kind, level, sums)
        return stored + self.rows(sums) if level == "selective" and kind == "decoder" else stored

    def rows(self, sums):
        """Bytes of the rows for a rank's experts, where ranks divide them."""
        if self.expert_ranks == 1:
            return 0
        tokens = sums.target_tokens
        return math.floor(self.row_bytes * (tokens - tokens // self.tensors * (self.tensors - 1)) * self.fullest)

    def peak(self, kind, sums):
        if kind not in ("decoder", "dense"):
            return self.layer_bytes(self.layer(kind).peak, sums)
        return self.layer_bytes(self.layer(kind).peak, sums, 2 * self.repeated, self._kept_of_rows if kind == "decoder" else 0.0)

    def split_backward_peak(self, kind, sums):
        """Beside what a layer keeps and puts aside; None: the profile does not say."""
        known = self.layer(kind).split_backward_peak
        if known is None or kind not in ("decoder", "dense"):
            return known and self.layer_bytes(known, sums)
        return self.layer_bytes(known, sums, self.repeated, self._kept_of_rows if kind == "decoder" else 0.0)

    def kept_of_head(self, sums):
        """The gradient of what the last layer gave."""
        return self.layer_bytes(self.layer("head").stored_none, sums)

    def logits(self, sums):
        """Of a head that tensor ranks divide: two thirds of what its peak has of logits."""
        head = self.layer("head")
        sides = ("source_token_bytes", "target_token_bytes")
        peak, kept = ([getattr(each, side) if each else 0.0 for side in sides] for each in (head.peak, head.stored_none))
        source, target = (max(0.0, most - 3 * least) for most, least in zip(peak, kept))
        return round_half_up(2 * (source * sums.source_tokens + target * sums.target_tokens) / 3 / self.tensors)

    def peak_has_gradients(self, kind):
        """Whether the profile's peak is above what the layer keeps without recompute."""
        layer = self.layer(kind)
        sides = ("source_token_bytes", "target_token_bytes")
        peak, kept = ([getattr(each, side) if each else 0.0 for side in sides] for each in (layer.peak, layer.stored_none))
        above = [peak[side] - kept[side] for side in range(len(sides))]
        return min(above) >= 0 and max(above) > 0

    def slowness(self, ranks):
        """By what passes of the slowest of these ranks are slower than the profile says."""
        return max((slow.factor for slow in self.profile.slow_ranks if slow.rank in ranks), default=1)

    def transfer_ns(self, transferred_bytes, rank, other_rank):
        """What a transfer from one rank to another takes, nanoseconds."""
        usual = self.usual_transfer_ns(transferred_bytes, rank, other_rank)
        slow = [link.factor for link in self.profile.slow_links if (getattr(link, "from"), link.to) == (rank, other_rank)]
        return round_half_up(usual * slow[0]) if slow else usual

    def usual_transfer_ns(self, transferred_bytes, rank, other_rank):
        """The same over a link that is not slow."""
        node = self.profile.cluster.gpus_per_node
        speed, latency = self._link(rank // node == other_rank // node)
        return latency + round_half_up(transferred_bytes / speed * 1e9)

    def _link(self, inside):
        cluster = self.profile.cluster
        if inside:
            return cluster.intra_node_bytes_per_second, cluster.intra_node_latency_ns
        return cluster.inter_node_bytes_per_second or cluster.intra_node_bytes_per_second, cluster.inter_node_latency_ns

    def collective_ns(self, sent_bytes, inside, ranks):
        """What a collective inside a pass over so many ranks takes, nanoseconds."""
        cluster = self.profile.cluster
        speed, latency = self._link(inside)
        of_ranks = [entry for entry in cluster.collective_speeds if inside and entry.ranks == ranks]
        if of_ranks:
            speed, latency = of_ranks[0].bytes_per_second, of_ranks[0].latency_ns
        elif inside:
            speed = cluster.intra_node_collective_bytes_per_second or speed
            latency = cluster.intra_node_collective_latency_ns or latency
        else:
            speed = cluster.inter_node_collective_bytes_per_second or speed
            latency = cluster.inter_node_collective_latency_ns or latency
        return latency + round_half_up(sent_bytes / speed * 1e9)
