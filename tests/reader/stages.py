"""Who is where: layers of stages, ranks of stages, boundaries (execution.md, section 1)."""

from dataclasses import dataclass

from schema import Message


@dataclass(frozen=True)
class Stage:
    index: int
    encoder_layers: int
    decoder_layers: int
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

    def layers(self, kind):
        return self.encoder_layers if kind == "encoder" else self.decoder_layers

    def levels(self, recompute):
        """{kind: {level: layers}} for the StageRecompute of a micro-batch: the first layers are at level full, then selective."""
        result = {}
        first = 0
        for kind in ("encoder", "decoder"):
            last = first + self.layers(kind)
            full = _overlap(first, last, 0, recompute.full_layers)
            selective = _overlap(first, last, recompute.full_layers, recompute.full_layers + recompute.selective_layers)
            result[kind] = {"none": last - first - full - selective, "selective": selective, "full": full}
            first = last
        return result


def _overlap(first, last, begin, end):
    return max(0, min(last, end) - max(first, begin))


def _tied_uses(model, is_first, embeds_target, is_last):
    if not model.tied_head and not model.tied_embeddings:
        return 0
    return int(embeds_target) + int(model.tied_head and is_last) + int(model.tied_embeddings and is_first)


class Pipeline:
    """The stages of a plan and the ranks that hold them. `element_bytes`: of the model's number format.

    Ranks are where the topology says (structure.py has looked at it); nothing is concluded from their numbers.
    """

    def __init__(self, plan: Message, is_t5, element_bytes):
        self.is_t5 = is_t5
        self.length = plan.mesh.pipeline
        self.replicas = plan.mesh.data
        self.contexts = plan.mesh.context or 1
        self.tensors = plan.mesh.tensor or 1
        self.experts = plan.mesh.expert or 1
        # Whether parameters lie in shares of all ranks, from which each iteration brings them to the stages.
        self.parameter_shares = plan.options is not None and plan.options.parameter_shares
        self._ranks = [[list(stage.ranks) for stage in replica.stages] for replica in plan.topology.replicas]
        self._place = {}  # rank -> (replica, place in its stage group)
        self._stages_of = {}
        for replica, groups in enumerate(self._ranks):
            for index, ranks in enumerate(groups):
                for place, rank in enumerate(ranks):
                    self._place[rank] = (replica, place)
                    self._stages_of.setdefault(rank, []).append(index)
        self.stages = []
        first_layer = 0
        count = len(plan.layers_per_stage)
        encoder_layers = plan.model.encoder_layers if is_t5 else 0
        seen_decoder = False
        for index, layers in enumerate(plan.layers_per_stage):
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
                    is_first=index == 0,
                    is_last=is_last,
                    is_first_decoder=is_first_decoder,
                    embeds_source=is_t5 and index == 0,
                    embeds_target=is_first_decoder if is_t5 else index == 0,
                    crosses_after=not is_last and self._ranks[0][index] != self._ranks[0][index + 1],
                    encoder_boundary_after=is_t5 and last_layer <= encoder_layers,
                    tied_uses=tied_uses,
                    repeated_table_bytes=max(0, tied_uses - 1) * plan.model.vocab * plan.model.hidden * element_bytes,
                )
            )
            first_layer = last_layer

    @property
    def group_size(self):
        return self.contexts * self.tensors

    @property
    def ranks(self):
        return sorted(self._place)

    @property
    def ranks_of_same_parameters(self):
        """How many ranks have the same part of a stage's parameters."""
        return self.replicas * self.contexts

    @property
    def ranks_of_same_experts(self):
        return self.replicas * self.group_size // self.experts

    def expert_reducers(self, stage, tensor):
        """Of each expert rank of the tensor rank those who have its experts; none where no ranks divide the experts."""
        if self.experts == 1:
            return []
        return [
            [
                self.rank(replica, stage.index, place)
                for replica in range(self.replicas)
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
            for replica in range(self.replicas)
            for context in range(self.contexts)
        ]

    def ranks_of_replica(self, replica):
        return sorted(rank for rank, (of, _) in self._place.items() if of == replica)

    def stage_groups(self, replica=None):
        """The lists of ranks that hold stages together, each once: replica by replica, in each by their lowest ranks."""
        result = []
        for number, groups in enumerate(self._ranks):
            if replica in (None, number):
                result += sorted((list(ranks) for ranks in {tuple(ranks) for ranks in groups}), key=min)
        return result

    def groups(self):
        """Plan.groups (section 5)."""
        return self._update_groups() + (self.stage_groups() if self.group_size > 1 else [])

    def _update_groups(self):
        """Those that sum gradients and update parameters."""
        if self.parameter_shares:
            return [self.ranks]
        reducers = [self.reducers(stage, tensor) for stage in self.stages for tensor in range(self.tensors)]
        return reducers + [self.ranks_of_replica(replica) for replica in range(self.replicas)]

    def group_of(self, op, rank, stage_index):
        """Index in Plan.groups of those with whom a rank runs a collective; None: the contract knows none."""
        if op == ("REDUCE_GRADIENTS" if self.parameter_shares else "RESHARD"):
            return None
        if op == "REDUCE_GRADIENTS":
            return stage_index * self.tensors + self.tensor(rank)
        if op == "RESHARD" or (op == "OPTIMIZER_STEP" and self.parameter_shares):
            return 0
        if op == "OPTIMIZER_STEP":
            return len(self.stages) * self.tensors + self.replica_of(rank)
        groups = self.stage_groups()
        return len(self._update_groups()) + next(index for index, ranks in enumerate(groups) if rank in ranks)
