"""What a REDUCE_GRADIENTS takes in buckets, and what last passes leave of it (execution.md, section 7)."""

import math
from dataclasses import dataclass

from durations import bucket_count, half_of_bucket
from reading import PASSES


@dataclass(frozen=True)
class Buckets:
    """The rings of all buckets of a stage on the ranks of one tensor rank."""

    bucket_ns: int
    count: int
    overlap: float

    def left(self, passes_ns):
        """Behind last passes of such durations, those of all ranks that have one."""
        whole = self.count * self.bucket_ns
        if not passes_ns:
            return whole
        beside = min(float(self.bucket_ns), min(passes_ns) / self.count)
        return whole - math.floor(self.overlap * (self.count - 1) * beside)


def reduce_durations(reading, world_costs):
    """{(stage, tensor rank): nanoseconds}, by the durations that the plan states of passes; empty where nothing is reduced."""
    if reading.world.parameter_shares or reading.forward_only:
        return {}
    passes = {}
    for rank, program in enumerate(reading.programs):
        tensor = reading.pipeline_of(rank).tensor(rank)
        for stage, pass_ns in _hiding_passes(reading, program).items():
            passes.setdefault((stage, tensor), []).append(pass_ns)
    of_mesh = world_costs.of_rank(0)
    durations = {}
    for stage in of_mesh.pipeline.stages:
        for tensor in range(of_mesh.pipeline.tensors):
            buckets = buckets_of(reading, of_mesh, stage, tensor)
            durations[stage.index, tensor] = buckets.left(passes.get((stage.index, tensor), []))
    return durations


def buckets_of(reading, of_mesh, stage, tensor):
    """Buckets of a stage and a tensor rank of the plan's one mesh."""
    options, costs = reading.options, of_mesh.costs
    count = bucket_count(costs, stage, options.gradient_bucket_bytes)
    rings = 1 if options.shard_optimizer_state else 2
    bucket_ns = rings * half_of_bucket(costs, stage, of_mesh.pipeline, tensor, count)
    return Buckets(bucket_ns, count, costs.profile.cluster.exchange_overlap)


def _hiding_passes(reading, program):
    """{stage: duration of its last pass, 0 where another REDUCE stands between that and its own}; of stages with a pass."""
    last, hiding = {}, {}
    for item in program.instructions:
        if reading.op(item) in PASSES:
            last[item.stage] = item.expected_duration_ns
        elif reading.op(item) == "REDUCE_GRADIENTS":
            if item.stage in last:
                hiding[item.stage] = last[item.stage]
            last = dict.fromkeys(last, 0)
    return hiding
