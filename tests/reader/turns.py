"""Passes that go through their layers part by part, in turn: what a rank waits for rows (execution.md, section 7, "Parts").

Whole nanoseconds throughout.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Journey:
    """Rows of one part under way: to their experts, or back."""

    # What is computed first, without which they cannot leave.
    before: int
    ns: int
    # What is computed once they have left.
    after: int = 0


@dataclass(frozen=True)
class PartPass:
    """The pass of one part through the layers of a stage."""

    journeys: list
    # What is computed when the last rows have come.
    behind: int = 0

    @property
    def computed_ns(self):
        return sum(journey.before + journey.after for journey in self.journeys) + self.behind


@dataclass(frozen=True)
class PartLayer:
    """What a rank does of one layer for one part, and how long the part's rows travel."""

    forward: int
    # By level, recomputation included.
    backward: dict
    # Products for the gradients of all its weights. What its experts take: forward, backward for their rows, and for their weights.
    weights: int
    experts: int
    rows_ns: int
    gradients_ns: int
    # Gathers and scatters over tensor ranks; backward without those of a layer that runs again.
    tensor: int
    tensor_backward: int
    # What attention does not hide of keys and values; backward by level.
    exposed: int
    exposed_backward: dict

    # Its rows have come back when all is computed.
    forward_rest = 0

    def forward_journeys(self, exposed):
        """Attention and all else, and then the experts."""
        experts = min(self.experts, self.forward)
        return [Journey(self.forward - experts + self.tensor + exposed, self.rows_ns), Journey(experts, self.rows_ns)]

    def backward_journeys(self, level):
        """Gradients to the experts and back, behind the layer once more where it runs again."""
        again = self.forward_journeys(exposed=0) if level == "full" else []
        return [*again, Journey(0, self.gradients_ns), Journey(self.experts, self.gradients_ns, after=self.experts)]

    def rest(self, level):
        """What is left of the backward pass when gradients of rows have come back."""
        again = self.forward if level == "full" else 0
        computed = max(0, self.backward[level] - self.weights - self.experts - again)
        return computed + self.tensor_backward + self.exposed_backward[level]


@dataclass(frozen=True)
class DensePartLayer:
    """The same of a layer without experts, which has no journeys."""

    forward: int
    backward: dict
    weights: int
    tensor: int
    tensor_backward: int
    exposed: int
    exposed_backward: dict

    def forward_journeys(self, exposed):
        return []

    @property
    def forward_rest(self):
        return self.forward + self.tensor + self.exposed

    def backward_journeys(self, level):
        return []

    def rest(self, level):
        return max(0, self.backward[level] - self.weights) + self.tensor_backward + self.exposed_backward[level]


def forward_pass(layer_of, kinds):
    """`layer_of`: PartLayer or DensePartLayer by kind; `kinds`: of the layers of the stage, from the lowest up."""
    layers = [layer_of[kind] for kind in kinds]
    return _pass((layer.forward_journeys(layer.exposed), layer.forward_rest) for layer in layers)


def backward_pass(layer_of, levels):
    """`levels`: kind and level of each layer of the stage, from the lowest up."""
    return _pass((layer_of[kind].backward_journeys(level), layer_of[kind].rest(level)) for kind, level in reversed(levels))


def _pass(layers):
    """Of (journeys, rest) of layers in their order: what is left of one is computed before the next journey."""
    journeys, rest = [], 0
    for of_layer, rest_of_layer in layers:
        if of_layer:
            first, *others = of_layer
            journeys += [Journey(rest + first.before, first.ns, first.after), *others]
            rest = 0
        rest += rest_of_layer
    return PartPass(journeys, rest)


def waiting_ns(passes):
    """How long a rank that goes through these in turn has nothing to compute, as if the others were always as far."""
    return ends_ns([passes])[0] - sum(each.computed_ns for each in passes)


def ends_ns(ranks):
    """When each rank has gone through its passes in turn, where all meet; `ranks`: of each the PartPass of every part.

    They share one link, on which rows queue: rows of a part leave when the last rank has them, and are there when the slowest rank's are.
    """
    now, line = [0] * len(ranks), 0
    arrived = [0] * len(ranks[0])
    for journeys_of_ranks in zip(*(zip(*(each.journeys for each in passes)) for passes in ranks)):
        for part, journeys in enumerate(zip(*journeys_of_ranks)):
            now = [max(own, arrived[part]) + journey.before for own, journey in zip(now, journeys)]
            line = max(line, *now) + max(journey.ns for journey in journeys)
            arrived[part] = line
            now = [own + journey.after for own, journey in zip(now, journeys)]
    for part, there in enumerate(arrived):
        now = [max(own, there) + passes[part].behind for own, passes in zip(now, ranks)]
    return now
