"""What the ranks of a plan cost: each by its mesh, and together what all of them share out (execution.md, section 7)."""

import math
from dataclasses import dataclass

from costs import Costs, round_half_up
from durations import all_parameter_bytes, fixed_step, rank_parameter_bytes
from exchange import Exchanges
from reading import PASSES
from stages import Pipeline

ROUND_BYTES = 4 * 2**20


@dataclass(frozen=True)
class MeshCosts:
    """A mesh with its costs."""

    pipeline: Pipeline
    costs: Costs
    exchanges: Exchanges


class WorldCosts:
    """MeshCosts of each rank, and of all ranks the shares of parameters and their RESHARDs. `reading` is of the plan, `profile` its profile."""

    def __init__(self, reading, profile):
        self._profile = profile
        self._ranks = reading.world.ranks
        self._weights = _share_weights(reading)
        self._of_rank = {}
        for pipeline in reading.world.pipelines:
            costs = Costs(profile, reading.plan.model, reading.is_t5, pipeline.tensors, pipeline.contexts, pipeline.experts)
            of_mesh = MeshCosts(pipeline, costs, Exchanges(reading, pipeline, costs))
            self._of_rank.update({rank: of_mesh for rank in pipeline.ranks})
        self.reshard_bytes = self._reshard_bytes()
        self.reshard_duration = self._reshard_duration()
        self.parameters_duration = self._parameters_duration(reading)
        self.gradients_duration = self._gradients_duration(reading)

    def of_rank(self, rank):
        return self._of_rank[rank]

    def bytes_of_share(self, rank):
        """M * w / W: parameters of a rank's share of all stages of its mesh, not rounded."""
        of_mesh = self.of_rank(rank)
        return all_parameter_bytes(of_mesh.costs, of_mesh.pipeline) * self._weights[rank] / sum(self._weights)

    def share_duration(self, rank):
        """The OPTIMIZER_STEP of a share."""
        duration = fixed_step(self._profile) + round_half_up(self.bytes_of_share(rank) * self._profile.optimizer_ns_per_parameter_byte)
        slowness = self.of_rank(rank).costs.slowness([rank])
        if len(set(self._weights)) == 1 or slowness == 1:
            return duration
        return round_half_up(duration * slowness)

    def _needed(self, rank):
        """Bytes of the parameters of a rank's stages."""
        of_mesh = self.of_rank(rank)
        return sum(rank_parameter_bytes(of_mesh.costs, stage) for stage in of_mesh.pipeline.stages_of(rank))

    def _reshard_bytes(self):
        """The most that a rank sends or receives: it has its share of what each needs."""
        weights = sum(self._weights)
        needed = [self._needed(rank) for rank in self._ranks]
        moved = [max(own * (weights - weight), (sum(needed) - own) * weight) for own, weight in zip(needed, self._weights)]
        return max(-(-most // weights) for most in moved)

    def _reshard_duration(self):
        """One part after the other to or from each of the other ranks."""
        others = len(self._ranks) - 1
        if others == 0:
            return 0
        part = -(-self.reshard_bytes // others)
        # Links are the same of all meshes.
        return others * self.of_rank(0).costs.usual_transfer_ns(part, 0, others)

    def _layers(self, rank):
        """{stage: layers} of a rank."""
        return {stage.index: stage.layer_count for stage in self.of_rank(rank).pipeline.stages_of(rank)}

    def _rounds(self):
        fewest = min(sum(self._layers(rank).values()) for rank in self._ranks)
        return max(1, min(self.reshard_bytes // ROUND_BYTES, fewest))

    def _parameters_duration(self, reading):
        """RESHARD part 0: what the first passes on all stages do not hide of it, by when the plan says that they run."""
        leads = []
        for rank in self._ranks:
            before = reading.programs[rank].instructions[0]
            ended = before.expected_start_ns + before.expected_duration_ns
            for stage, passes in _passes(reading, rank).items():
                leads.append(passes[0].expected_start_ns - ended + self._lead(rank, stage, passes[0].expected_duration_ns))
        return self._left(leads)

    def _gradients_duration(self, reading):
        """RESHARD part 1, likewise of the last passes."""
        ends, leads = [], []
        for rank in self._ranks:
            for stage, passes in _passes(reading, rank).items():
                last = passes[-1]
                ends.append(last.expected_start_ns + last.expected_duration_ns)
                leads.append(self._lead(rank, stage, last.expected_duration_ns))
        return self._left([max(ends) - end + lead for end, lead in zip(ends, leads)])

    def _left(self, leads):
        """What is left of a RESHARD where each of the passes could hide so much."""
        if not leads:
            return self.reshard_duration
        return self.reshard_duration - math.floor(self._profile.cluster.exchange_overlap * max(0, min(leads)))

    def _lead(self, rank, stage, pass_ns):
        """How long before the end of a pass on a stage of a rank all rounds could have begun; how long behind its start they may end."""
        layers, rounds, whole = self._layers(rank), self._rounds(), self.reshard_duration
        count, own = sum(layers.values()), layers[stage]
        below = sum(number for other, number in layers.items() if other < stage)
        of_last = whole * ((count - below) / count - 1 / rounds)
        of_first = pass_ns * max(0, 1 - count / (rounds * own)) + whole * (count - below - own) / count
        return min(of_last, of_first)


def _share_weights(reading):
    """By rank, without a common divisor."""
    stated = list(reading.options.share_weights)
    if not stated:
        return [1] * len(reading.world.ranks)
    divisor = math.gcd(*stated)
    return [weight // divisor for weight in stated]


def _passes(reading, rank):
    """{stage: [instruction], in their order}"""
    passes = {}
    for item in reading.programs[rank].instructions:
        if reading.op(item) in PASSES:
            passes.setdefault(item.stage, []).append(item)
    return passes
