"""The duration of every instruction from the cost profile (execution.md, section 7)."""

from costs import LEVELS, round_half_up


def parameter_bytes(costs, stage):
    """parameters[s]: bytes of the parameters of a stage, not rounded."""
    result = 0.0
    for kind in ("encoder", "decoder"):
        if stage.layers(kind) > 0:
            result += stage.layers(kind) * costs.layer(kind).parameter_bytes
    result += stage.embeddings * costs.profile.embedding_parameter_bytes
    if stage.is_last:
        result += costs.layer("head").parameter_bytes
    return max(0.0, result - stage.repeated_table_bytes) if stage.repeated_table_bytes else result


def pass_durations(costs, stage, sums, recompute):
    """{op: nanoseconds} that a rank computes in the passes of a micro-batch on a stage."""
    times = {kind: costs.times(kind, sums) for kind in costs.kinds if stage.layers(kind) > 0}
    levels = stage.levels(recompute)
    embeddings = 0.0
    if stage.embeds_source:
        embeddings += costs.source_embedding(sums)
    if stage.embeds_target:
        embeddings += costs.target_embedding(sums)

    forward = backward = weight = 0.0
    for kind, time in times.items():
        forward += stage.layers(kind) * time.forward
        for level in LEVELS:
            backward += levels[kind][level] * time.backward[level]
        weight += stage.layers(kind) * time.backward["none"] * (1 - costs.layer(kind).backward_input_share)
    forward += embeddings
    backward += embeddings
    if stage.is_last:
        head = costs.times("head", sums)
        forward += head.forward
        backward += head.backward["none"]
    backward_ns, weight_ns = round_half_up(backward), round_half_up(weight)
    return {
        "FORWARD": round_half_up(forward),
        "BACKWARD": backward_ns,
        "BACKWARD_INPUT": backward_ns - weight_ns,
        "BACKWARD_WEIGHT": weight_ns,
    }


def own_parameter_bytes(costs, stage):
    """own[s]: bytes of the parameters of a stage on one of its ranks, not rounded."""
    return parameter_bytes(costs, stage) / costs.tensors + stage.decoder_layers * costs.repeated * costs.hidden


def rank_parameter_bytes(costs, stage):
    """Parameter bytes of a stage on one of its ranks."""
    return round_half_up(own_parameter_bytes(costs, stage))


def share_bytes(costs, stage, count):
    return -(-rank_parameter_bytes(costs, stage) // count)


def half_ring(costs, stage, ranks):
    """A reduce-scatter or an all-gather: a ring over the ranks that have the same part of the stage."""
    count = len(ranks)
    if count == 1:
        return 0
    share = share_bytes(costs, stage, count)
    step = max(costs.transfer_ns(share, rank, ranks[(index + 1) % count]) for index, rank in enumerate(ranks))
    return (count - 1) * step


def reduce_duration(costs, stage, ranks, shard_optimizer_state):
    return (1 if shard_optimizer_state else 2) * half_ring(costs, stage, ranks)


def optimizer_duration(costs, stage, ranks, shard_optimizer_state):
    """Of one stage of a rank; `ranks` have the same part of it."""
    per_byte = costs.profile.optimizer_ns_per_parameter_byte
    if not shard_optimizer_state:
        return round_half_up(rank_parameter_bytes(costs, stage) * per_byte)
    return round_half_up(share_bytes(costs, stage, len(ranks)) * per_byte) + half_ring(costs, stage, ranks)
