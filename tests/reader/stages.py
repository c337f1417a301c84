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
    """The stages of a plan and the ranks that hold them. `element_bytes`: of the model's number format."""

    def __init__(self, plan: Message, is_t5, element_bytes):
        self.is_t5 = is_t5
        self.length = plan.mesh.pipeline
        self.replicas = plan.mesh.data
        self._position_of_stage = {
            stage: position for position in range(self.length) for stage in plan.programs[position].stages
        }
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
                    crosses_after=not is_last and self._position_of_stage[index] != self._position_of_stage[index + 1],
                    encoder_boundary_after=is_t5 and last_layer <= encoder_layers,
                    tied_uses=tied_uses,
                    repeated_table_bytes=max(0, tied_uses - 1) * plan.model.vocab * plan.model.hidden * element_bytes,
                )
            )
            first_layer = last_layer

    def rank(self, replica, stage_index):
        return replica * self.length + self._position_of_stage[stage_index]

    def crosses_before(self, stage):
        return stage.index > 0 and self.stages[stage.index - 1].crosses_after

    def stages_of(self, rank):
        """Stages of a rank, ascending."""
        position = rank % self.length
        return [stage for stage in self.stages if self._position_of_stage[stage.index] == position]

    def stages_with(self, kind):
        """How many stages have layers of a kind."""
        return sum(stage.layers(kind) > 0 for stage in self.stages)
