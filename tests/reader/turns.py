"""Passes that go through their layers part by part, in turn: what a rank waits for rows (execution.md, section 7, "Parts").

Whole nanoseconds throughout.
"""

from dataclasses import dataclass

# From the uppermost layers of a stage down: the first ones are recomputed in full.
LEVELS_DOWNWARDS = ("none", "selective", "full")


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


def forward_pass(layer, layers):
    return PartPass(layer.forward_journeys(layer.exposed) * layers)


def backward_pass(layer, levels):
    """`levels`: how many layers of the stage are at each."""
    journeys, rest = [], 0
    for level in LEVELS_DOWNWARDS:
        for _ in range(levels[level]):
            first, *others = layer.backward_journeys(level)
            journeys += [Journey(rest + first.before, first.ns, first.after), *others]
            rest = layer.rest(level)
    return PartPass(journeys, rest)


def waiting_ns(passes):
    """How long a rank that goes through these in turn has nothing to compute. They share one link, on which rows queue."""
    now = line = 0
    arrived = [0] * len(passes)
    for journeys in zip(*(each.journeys for each in passes)):
        for part, journey in enumerate(journeys):
            now = max(now, arrived[part]) + journey.before
            line = max(line, now) + journey.ns
            arrived[part] = line
            now += journey.after
    for part, each in enumerate(passes):
        now = max(now, arrived[part]) + each.behind
    return now - sum(each.computed_ns for each in passes)
