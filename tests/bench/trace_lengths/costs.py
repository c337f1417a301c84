"""Costs in closed form that give back the passes of a trace, as a cost profile, and what steps take by them under 1F1B."""

import statistics
from dataclasses import dataclass

# The model is not known, and its width only gives transfers their bytes.
HIDDEN, ELEMENT_BYTES = 64, 2
# A token that is kept, bytes: so many that what crosses stages beside it does not count.
KEPT_BYTES = 1_000_000
# What crosses stages, and rounding.
MEMORY_MARGIN = 1.002
FREE_BYTES_PER_SECOND = 1e15
# Passes of a pipeline's last stage keep the head's output beside, so that a micro-batch of all allowed tokens fills the first stage, which has two
# of them at once, and the last.
AT_ONCE = 2


@dataclass(frozen=True)
class Line:
    """Seconds of a pass of a full micro-batch: intercept + slope * squares."""

    intercept: float
    slope: float


@dataclass(frozen=True)
class Costs:
    """Lines of layers, a stage's by kind, and what the first and the last stage have besides, seconds of a full micro-batch by kind."""

    layers: dict
    embedding: dict
    head: dict
    stages: int
    # Of the intercepts, what does not depend on tokens.
    fixed: float

    def seconds(self, kind, stage, shape):
        line = self.layers[kind]
        own = line.intercept + (self.embedding[kind] if stage == 0 else 0) + (self.head[kind] if stage == self.stages - 1 else 0)
        return own * (self.fixed + (1 - self.fixed) * shape.tokens) + line.slope * shape.squares

    def passes(self, shape):
        return {(kind, stage): self.seconds(kind, stage, shape) for kind in self.layers for stage in range(self.stages)}


def fitted_line(micro_batches, shapes, key):
    points = [(shape.squares, one[key]) for one, shape in zip(micro_batches, shapes) if shape.tokens == 1]
    fitted = statistics.linear_regression(*zip(*points))
    return Line(fitted.intercept, fitted.slope)


def fitted_costs(micro_batches, shapes, stages, fixed):
    """All stages have the same layers. Two stages do not say what an embedding takes: it is taken to be nothing there, and the head to be the difference."""
    layers, embedding, head = {}, {}, {}
    for kind in ("forward", "backward"):
        lines = [fitted_line(micro_batches, shapes, (kind, stage)) for stage in range(stages)]
        inner = lines[1:-1] or lines[:1]
        layers[kind] = Line(statistics.mean(line.intercept for line in inner), statistics.mean(line.slope for line in lines))
        embedding[kind] = max(0.0, lines[0].intercept - layers[kind].intercept)
        head[kind] = max(0.0, lines[-1].intercept - layers[kind].intercept)
    # A profile has one time of an embedding for both passes.
    embedding = dict.fromkeys(embedding, statistics.mean(embedding.values()))
    return Costs(layers, embedding, head, stages, fixed)


def pass_errors(costs, micro_batches, shapes):
    """(kind, stage) -> mean of |costs / measured - 1|."""
    return {key: statistics.mean(abs(costs.seconds(*key, shape) / one[key] - 1) for one, shape in zip(micro_batches, shapes)) for key in micro_batches[0]}


def layer_time(seconds, fixed, context, squares_seconds=0.0):
    return {"fixed_ns": seconds * fixed * 1e9, "target_token_ns": seconds * (1 - fixed) / context * 1e9, "target_square_ns": squares_seconds / context**2 * 1e9}


def profile(costs, context, transfer_seconds, room):
    """As `penstock` reads it (execution.md, section 14, ProfileFile): one layer a stage, no parameters, and memory for micro-batches of `room` contexts.

    Half of the backward pass without squares makes gradients of weights, which matters to schedules that put these off alone."""
    forward, backward = costs.layers["forward"], costs.layers["backward"]
    layer = {
        "name": "layer",
        "parameter_bytes": 1,
        "forward": layer_time(forward.intercept, costs.fixed, context, forward.slope),
        "backward_ratio_none": backward.intercept / forward.intercept,
        "backward_input": layer_time(backward.intercept / 2, costs.fixed, context, backward.slope),
        "backward_weight": layer_time(backward.intercept / 2, costs.fixed, context),
        "stored_none": {"target_token_bytes": KEPT_BYTES},
    }
    head = {
        "name": "head",
        "forward": layer_time(costs.head["forward"], costs.fixed, context),
        "backward_ratio_none": costs.head["backward"] / costs.head["forward"] if costs.head["forward"] else 1,
        "peak": {"target_token_bytes": KEPT_BYTES},
    }
    speed = context * HIDDEN * ELEMENT_BYTES / transfer_seconds if transfer_seconds else FREE_BYTES_PER_SECOND
    cluster = {"memory_bytes": round(AT_ONCE * room * context * KEPT_BYTES * MEMORY_MARGIN), "gpus_per_node": 1,
               "intra_node_bytes_per_second": speed, "inter_node_bytes_per_second": speed}
    model = {"architecture": "ARCHITECTURE_GPT", "layers": costs.stages, "hidden": HIDDEN, "heads": 1, "ffn": 4 * HIDDEN, "vocab": 256,
             "max_sequence_length": context, "dtype": "DATA_TYPE_BFLOAT16"}
    return {"model": model, "profile": {"name": "trace", "version": 1, "layers": [layer, head], "cluster": cluster, "bytes_per_element": ELEMENT_BYTES,
                                        "embedding_forward": layer_time(costs.embedding["forward"], costs.fixed, context)}}


def order_1f1b(stage, stages, count):
    ahead = min(stages - 1 - stage, count)
    order = [("forward", number) for number in range(ahead)]
    for number in range(count - ahead):
        order += [("forward", number + ahead), ("backward", number)]
    return order + [("backward", number) for number in range(count - ahead, count)]


def replay(passes, stages, transfer_seconds):
    """End of the last pass of one replica, seconds. `passes`: of each micro-batch (kind, stage) -> seconds. Transfers run beside passes."""
    orders = [order_1f1b(stage, stages, len(passes)) for stage in range(stages)]
    ends, free, at = {}, [0.0] * stages, [0] * stages
    while any(place < len(order) for place, order in zip(at, orders)):
        for stage, order in enumerate(orders):
            while at[stage] < len(order):
                kind, number = order[at[stage]]
                before = stage - 1 if kind == "forward" else stage + 1
                if 0 <= before < stages and (kind, before, number) not in ends:
                    break
                arrival = ends[kind, before, number] + transfer_seconds if 0 <= before < stages else 0.0
                free[stage] = ends[kind, stage, number] = max(free[stage], arrival) + passes[number][kind, stage]
                at[stage] += 1
    return max(free)

