"""Who is where: layers of stages, ranks of stages, boundaries (execution.md, section 1)."""

import itertools
from dataclasses import dataclass

from schema import Message


@dataclass(frozen=True)
class Stage:
    index: int
    encoder_layers: int
    # Dense ones among them.
    decoder_layers: int
    # Places in the stage, from 0, of layers without experts in a model with experts.
    dense: tuple
    is_first: bool
    is_last: bool
    # The lowest stage with a decoder layer, of a T5.
    is_first_decoder: bool
    embeds_source: bool
    embeds_target: bool
    # The boundary after the stage lies between two ranks; false after the last stage.
    crosses_after: bool
    # The boundary after the stage is one between encoder layers, or between encoder and decoder.
    encoder_boundary_after: bool
    # How often the stage uses a token embedding that is tied, and the bytes that the profile counts once too often for it.
    tied_uses: int
    repeated_table_bytes: int

    @property
    def loads(self):
        return self.is_first or self.is_last or self.is_first_decoder

    @property
    def embeddings(self):
        """How many embeddings the stage holds."""
        return int(self.is_first) + int(self.is_first_decoder)

    @property
    def kinds(self):
        """Of each layer, from the lowest up."""
        return ["encoder" if i < self.encoder_layers else "dense" if i in self.dense else "decoder" for i in range(self.layer_count)]

    @property
    def longest_dense_run(self):
        """Layers without experts that follow each other, at most."""
        return max((len(list(run)) for kind, run in itertools.groupby(self.kinds) if kind == "dense"), default=0)

    @property
    def layer_count(self):
        return self.encoder_layers + self.decoder_layers

    def layers(self, kind):
        return self.kinds.count(kind)

    def levels_upwards(self, recompute):
        """[(kind, level)] of the layers for the StageRecompute of a micro-batch: the first are at level full, then selective."""
        levels = ["full"] * recompute.full_layers + ["selective"] * recompute.selective_layers
        return list(zip(self.kinds, levels + ["none"] * (self.layer_count - len(levels))))

    def levels(self, recompute):
        """{kind: {level: layers}} of these."""
        result = {kind: dict.fromkeys(("none", "selective", "full"), 0) for kind in ("encoder", "decoder", "dense")}
        for kind, level in self.levels_upwards(recompute):
            result[kind][level] += 1
        return result


def _overlap(first, last, begin, end):
    return max(0, min(last, end) - max(first, begin))


def _tied_uses(model, is_first, embeds_target, is_last):
    if not model.tied_head and not model.tied_embeddings:
        return 0
    return int(embeds_target) + int(model.tied_head and is_last) + int(model.tied_embeddings and is_first)


class Pipeline:
    """The stages of a mesh (meshes.py) of a plan and the ranks that hold them. `element_bytes`: of the model's number format.

    Ranks are where the topology says (structure.py has looked at it); nothing is concluded from their numbers. Replicas and ranks have
    the numbers that they have in the plan.
    """

    def __init__(self, plan: Message, placed, is_t5, element_bytes):
        self.is_t5 = is_t5
        self.placed = placed
        self.length = placed.mesh.pipeline
        self.replicas = placed.replicas
        self.contexts = placed.contexts
        self.tensors = placed.tensors
        self.experts = placed.experts
        self.group_size = placed.group_size
        self._ranks = {  # replica -> ranks of its stages
            replica: [list(stage.ranks) for stage in plan.topology.replicas[replica].stages] for replica in self.replicas
        }
        self._place = {}  # rank -> (replica, place in its stage group)
        self._stages_of = {}
        for replica, groups in self._ranks.items():
            for index, ranks in enumerate(groups):
                for place, rank in enumerate(ranks):
                    self._place[rank] = (replica, place)
                    self._stages_of.setdefault(rank, []).append(index)
        self.stages = []
        first_layer = 0
        count = len(placed.layers_per_stage)
        of_first = self._ranks[placed.first_replica]
        encoder_layers = plan.model.encoder_layers if is_t5 else 0
        seen_decoder = False
        for index, layers in enumerate(placed.layers_per_stage):
            last_layer = first_layer + layers
            encoders = _overlap(first_layer, last_layer, 0, encoder_layers)
            is_last = index == count - 1
            is_first_decoder = is_t5 and layers > encoders and not seen_decoder
            seen_decoder = seen_decoder or is_first_decoder
            tied_uses = _tied_uses(plan.model, index == 0, is_first_decoder if is_t5 else index == 0, is_last)
            self.stages.append(
                Stage(
                    index=index,
                    encoder_layers=encoders,
                    decoder_layers=layers - encoders,
                    dense=tuple(layer - 1 - first_layer for layer in plan.model.dense_layers if first_layer < layer <= last_layer),
                    is_first=index == 0,
                    is_last=is_last,
                    is_first_decoder=is_first_decoder,
                    embeds_source=is_t5 and index == 0,
                    embeds_target=is_first_decoder if is_t5 else index == 0,
                    crosses_after=not is_last and of_first[index] != of_first[index + 1],
                    encoder_boundary_after=is_t5 and last_layer <= encoder_layers,
                    tied_uses=tied_uses,
                    repeated_table_bytes=max(0, tied_uses - 1) * plan.model.vocab * plan.model.hidden * element_bytes,
                )
            )
            first_layer = last_layer

    @property
    def ranks(self):
        return sorted(self._place)

    @property
    def ranks_of_same_parameters(self):
        """How many ranks have the same part of a stage's parameters."""
        return len(self.replicas) * self.contexts

    @property
    def ranks_of_same_experts(self):
        return len(self.replicas) * self.group_size // self.experts

    def expert_reducers(self, stage, tensor):
        """Of each expert rank of the tensor rank those who have its experts; none where no ranks divide the experts."""
        if self.experts == 1 or stage.layers("decoder") == 0:
            return []
        return [
            [
                self.rank(replica, stage.index, place)
                for replica in self.replicas
                for place in range(expert, self.group_size, self.experts)
            ]
            for expert in range(tensor, self.experts, self.tensors)
        ]

    def rank(self, replica, stage_index, place=0):
        return self._ranks[replica][stage_index][place]

    def ranks_of_group(self, replica, stage):
        return self._ranks[replica][stage.index]

    def replica_of(self, rank):
        return self._place[rank][0]

    def place(self, rank):
        return self._place[rank][1]

    def context(self, rank):
        return self.place(rank) // self.tensors

    def tensor(self, rank):
        return self.place(rank) % self.tensors

    def crosses_before(self, stage):
        return stage.index > 0 and self.stages[stage.index - 1].crosses_after

    def stages_of(self, rank):
        """Stages of a rank, ascending."""
        return [self.stages[index] for index in self._stages_of[rank]]

    def stages_with(self, kind):
        """How many stages have layers of a kind."""
        return sum(stage.layers(kind) > 0 for stage in self.stages)

    def reducers(self, stage, tensor):
        """The ranks that have the same part of a stage, in the order in which they sum its gradients."""
        return [
            self.rank(replica, stage.index, context * self.tensors + tensor)
            for replica in self.replicas
            for context in range(self.contexts)
        ]

    def ranks_of_replica(self, replica):
        return sorted(rank for rank, (of, _) in self._place.items() if of == replica)

    def stage_groups(self):
        """The lists of ranks that hold stages together, each once: replica by replica, in each by their lowest ranks."""
        result = []
        for groups in self._ranks.values():
            result += sorted((list(ranks) for ranks in {tuple(ranks) for ranks in groups}), key=min)
        return result
