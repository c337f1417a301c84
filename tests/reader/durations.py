"""The duration of every instruction from the cost profile (execution.md, section 7)."""

import functools
import operator

from costs import LEVELS, round_half_up


def parameter_bytes(costs, stage):
    """parameters[s]: bytes of the parameters of a stage, not rounded."""
    result = 0.0
    for kind in costs.kinds:
        if stage.layers(kind) > 0:
            result += stage.layers(kind) * costs.layer(kind).parameter_bytes
    result += stage.embeddings * costs.profile.embedding_parameter_bytes
    if stage.is_last:
        result += costs.layer("head").parameter_bytes
    return max(0.0, result - stage.repeated_table_bytes) if stage.repeated_table_bytes else result


def _layer_times(costs, kind, share, forward):
    """PassTimes of a layer. Parts of a micro-batch go through it one by one; head and embeddings take it whole."""
    return functools.reduce(operator.add, (costs.times(kind, part.sums) for part in share.in_pass(forward)))


def _joining(costs, kind, level, share):
    """What putting into one piece what a layer kept of parts takes, where the backward pass needs that."""
    speed = costs.profile.cluster.copy_bytes_per_second
    if not (share.parts and share.whole_backward and speed):
        return 0.0
    put_aside = costs.rows(share.sums) if kind == "decoder" and level == "none" else 0
    return max(0, costs.stored(kind, level, share.sums) - put_aside) / speed * 1e9


def pass_durations(costs, stage, share, recompute, beside_ns):
    """{op: nanoseconds} that a rank computes in the passes of its share of a micro-batch on a stage.

    beside_ns: what backward passes make of products for weights while rows of experts travel.
    """
    sums = share.sums
    kinds = [kind for kind in costs.kinds if stage.layers(kind) > 0]
    levels = stage.levels(recompute)
    embeddings = 0.0
    if stage.embeds_source:
        embeddings += costs.source_embedding(sums)
    if stage.embeds_target:
        embeddings += costs.target_embedding(sums)

    forward = backward = weight = 0.0
    for kind in kinds:
        forward += stage.layers(kind) * _layer_times(costs, kind, share, forward=True).forward
        back = _layer_times(costs, kind, share, forward=False)
        for level in LEVELS:
            backward += levels[kind][level] * (back.backward[level] + _joining(costs, kind, level, share))
        weight += stage.layers(kind) * back.weight
    forward += embeddings
    backward += embeddings
    if stage.is_last:
        head = costs.times("head", sums)
        forward += head.forward
        backward += head.backward["none"]
    backward_ns, weight_ns = round_half_up(backward), round_half_up(weight) - beside_ns
    return {
        "FORWARD": round_half_up(forward),
        "BACKWARD": backward_ns,
        "BACKWARD_INPUT": backward_ns - weight_ns,
        "BACKWARD_WEIGHT": weight_ns,
    }


def _expert_layers_bytes(costs, stage):
    """experts[s]: bytes of all experts of a stage; 0 where no ranks divide them."""
    return stage.layers("decoder") * costs.expert_layer_bytes


def own_parameter_bytes(costs, stage):
    """own[s]: bytes of the parameters of a stage on one of its ranks but experts that ranks divide, not rounded."""
    common = max(0.0, parameter_bytes(costs, stage) - _expert_layers_bytes(costs, stage))
    return common / costs.tensors + stage.decoder_layers * costs.repeated * costs.hidden


def own_expert_bytes(costs, stage):
    """of_experts[s]: the same of experts that ranks divide."""
    return _expert_layers_bytes(costs, stage) / costs.expert_ranks


def adapter_bytes(costs, stage):
    """adapters[s]: of the adapters of a stage on one of its ranks."""
    return sum(stage.layers(kind) * costs.adapter_layer_bytes(kind) for kind in costs.kinds)


def learnt_bytes(costs, stage):
    """Of what learns of a stage on one of its ranks, but experts that ranks divide, not rounded."""
    return adapter_bytes(costs, stage) if costs.adapters is not None else own_parameter_bytes(costs, stage)


def rank_parameter_bytes(costs, stage):
    """Parameter bytes of a stage on one of its ranks."""
    if costs.adapters is not None:
        return adapter_bytes(costs, stage)
    return round_half_up(own_parameter_bytes(costs, stage)) + round_half_up(own_expert_bytes(costs, stage))


def share_bytes(own_bytes, count):
    return -(-round_half_up(own_bytes) // count)


def _ring(costs, own_bytes, ranks):
    """A reduce-scatter or an all-gather: a ring over the ranks that have the same."""
    count = len(ranks)
    if count == 1:
        return 0
    share = share_bytes(own_bytes, count)
    step = max(costs.transfer_ns(share, rank, ranks[(index + 1) % count]) for index, rank in enumerate(ranks))
    return (count - 1) * step


def bucket_count(costs, stage, bucket_bytes):
    """buckets[s]: into how many its gradients go where a bucket has so many bytes, 0 where the plan has no size."""
    if not bucket_bytes:
        return 1
    if round_half_up(own_expert_bytes(costs, stage)) > 0:
        return stage.layer_count
    summed = round_half_up(learnt_bytes(costs, stage)) * (2 if costs.profile.bytes_per_element == 2 else 1)
    if summed == 0:
        return 1
    layers_of_bucket = -(-bucket_bytes * stage.layer_count // summed)
    return -(-stage.layer_count // layers_of_bucket)


def half_of_bucket(costs, stage, pipeline, tensor, count):
    """Of one of so many equal buckets, on a tensor rank."""
    common = _ring(costs, share_bytes(learnt_bytes(costs, stage), count), pipeline.reducers(stage, tensor))
    of_experts = share_bytes(own_expert_bytes(costs, stage), count)
    rings = [_ring(costs, of_experts, ranks) for ranks in pipeline.expert_reducers(stage, tensor)]
    return common + max(rings, default=0)


def half_ring(costs, stage, pipeline, tensor, bucket_bytes):
    """half[s] of a tensor rank."""
    count = bucket_count(costs, stage, bucket_bytes)
    return count * half_of_bucket(costs, stage, pipeline, tensor, count)


def fixed_step(profile):
    """What a rank's OPTIMIZER_STEP takes however little it updates."""
    return round_half_up(profile.optimizer_fixed_ns)


def optimizer_duration(costs, stage, pipeline, tensor, options):
    """Of one stage of a rank of a tensor rank."""
    per_byte = costs.profile.optimizer_ns_per_parameter_byte
    if not options.shard_optimizer_state:
        return round_half_up(rank_parameter_bytes(costs, stage) * per_byte)
    updated = share_bytes(learnt_bytes(costs, stage), pipeline.ranks_of_same_parameters)
    updated += share_bytes(own_expert_bytes(costs, stage), pipeline.ranks_of_same_experts)
    return round_half_up(updated * per_byte) + half_ring(costs, stage, pipeline, tensor, options.gradient_bucket_bytes)


def all_parameter_bytes(costs, pipeline):
    """M: of all stages of a mesh, each once, not rounded."""
    return sum(own_parameter_bytes(costs, stage) * costs.tensors + _expert_layers_bytes(costs, stage) for stage in pipeline.stages)
