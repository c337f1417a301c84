"""Parts that no planner chose: plans whose micro-batches are cut anywhere, with the numbers that follow by the contract.

Planners choose few parts of much the same size. What the contract says of all others, two who know it can only agree on by such plans.
"""

import copy

from exchange import NAMES
from parts import FEWEST_PARTS, MOST_PARTS, may_go_back_whole, may_have_parts, row_count
from pass_bytes import PassBytes
from pass_costs import PassCosts
from reading import Reading
from reductions import reduce_durations
from settle import settle
from world_costs import WorldCosts


WHOLE = 0.2
WHOLE_BACKWARD = 0.4
# Of those that could have whole backward passes.
CUT_ROWS = 0.4


class NoParts(Exception):
    """No micro-batch of the plan may have parts."""


def with_drawn_parts(schema, planned_batch, profile_file, generator):
    """A copy in which nothing else is wrong than it was. Raises NoParts."""
    drawn = copy.deepcopy(planned_batch)
    _draw(Reading(schema, drawn), generator)
    reading = Reading(schema, drawn)  # Shares of the parts.
    world_costs = WorldCosts(reading, profile_file.profile)
    _set_costs(reading, PassCosts(reading, world_costs))
    _set_bytes(reading, PassBytes(reading, world_costs))
    settle(schema, drawn)
    # By how long passes take now, and when they run.
    _set_exchanges_beside_passes(reading, WorldCosts(reading, profile_file.profile))
    settle(schema, drawn)
    return drawn


def _set_exchanges_beside_passes(reading, world_costs):
    reductions = reduce_durations(reading, world_costs)
    for rank, item in reading.instructions():
        if reading.op(item) == "REDUCE_GRADIENTS":
            item.expected_duration_ns = reductions[item.stage, reading.pipeline_of(rank).tensor(rank)]
        elif reading.op(item) == "RESHARD":
            item.expected_duration_ns = world_costs.gradients_duration if item.part == 1 else world_costs.parameters_duration


def _draw(reading, generator):
    cut = 0
    for pipeline in reading.world.pipelines:
        for replica in pipeline.replicas if may_have_parts(pipeline) else []:
            for item in reading.plan.replicas[replica].micro_batches:
                most = reading.options.most_parts or MOST_PARTS
                item.part_rows, item.part_chunks = _bounds(row_count(reading.layout(item) == "PACKED", item), most, generator), []
                item.whole_backward = bool(item.part_rows) and may_go_back_whole(pipeline) and generator.random() < WHOLE_BACKWARD
                if may_go_back_whole(pipeline) and not reading.plan.model.expert_capacity_factor and generator.random() < CUT_ROWS:
                    _cut_rows(item, most, generator)
                cut += bool(item.part_rows)
    if cut == 0:
        raise NoParts


def _bounds(rows, most_parts, generator):
    """part_rows; now and then those of a micro-batch that stays whole."""
    most = min(rows, most_parts)
    if most < FEWEST_PARTS or generator.random() < WHOLE:
        return []
    return [0, *sorted(generator.sample(range(1, rows), generator.randint(FEWEST_PARTS, most) - 1)), rows]


def _cut_rows(item, most_parts, generator):
    """Parts that begin with any chunks, where rows have some; else all stays as it is."""
    places = [(row, chunk) for row, ranks in enumerate(item.span_ranks) for chunk in range(2 * ranks if ranks > 1 else 1)]
    rows, most = len(item.span_ranks), min(len(places), most_parts)
    if most < FEWEST_PARTS or len(places) == rows:
        return
    begins = sorted(generator.sample(places[1:], generator.randint(FEWEST_PARTS, most) - 1))
    bounds = [(0, 0), *begins, (rows, 0)]
    item.part_rows = [row for row, _ in bounds]
    item.part_chunks = [chunk for _, chunk in bounds] if any(chunk for _, chunk in bounds) else []
    item.whole_backward = True


def _set_costs(reading, pass_costs):
    for rank, item in reading.instructions():
        if not reading.is_joint(rank, item):
            continue
        cost = pass_costs.of(rank, item)
        item.own_duration_ns, item.expected_duration_ns = cost.own_ns, cost.expected_ns
        fields = {name: getattr(cost.exchange, name) for name in NAMES}
        item.exchange = None if cost.exchange.is_empty else reading.schema.message("PassExchange", fields)


def _set_bytes(reading, pass_bytes):
    """Rows that are cut are kept for the next part."""
    for rank, item in reading.instructions():
        item.memory_acquired_bytes, item.memory_released_bytes = pass_bytes.of(rank, item)
