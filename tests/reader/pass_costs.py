"""What passes take, and what ranks exchange in them (execution.md, section 7): recomputed once, whoever asks for it."""

from dataclasses import dataclass

from costs import round_half_up
from durations import pass_durations
from exchange import PassExchange


@dataclass(frozen=True)
class PassCost:
    """Of a pass of a rank: what it takes the rank alone, and its whole stage group."""

    own_ns: int
    expected_ns: int
    exchange: PassExchange


class PassCosts:
    """Of the passes of a plan. `world_costs`: what its ranks cost."""

    def __init__(self, reading, world_costs):
        self._reading = reading
        self._world_costs = world_costs
        self._known = {}

    def of(self, rank, item):
        """PassCost of an instruction that is a pass."""
        pipeline, op = self._reading.pipeline_of(rank), self._reading.op(item)
        found = self._of_contexts(rank, item.micro_batch, pipeline.stages[item.stage])
        own, exchange = found[pipeline.context(rank)][op]
        return PassCost(own, max(costs_of[op][0] for costs_of in found), exchange)

    def _of_contexts(self, rank, index, stage):
        """{op: (own duration, PassExchange)} of each of the context ranks of a rank's stage group."""
        replica, of_mesh = self._reading.replica_of(rank), self._world_costs.of_rank(rank)
        key = (replica, index, stage.index)
        if key not in self._known:
            recompute = self._reading.plan.replicas[replica].micro_batches[index].recompute[stage.index]
            shares = [self._reading.share(replica, index, context) for context in range(of_mesh.pipeline.contexts)]
            self._known[key] = [
                _slowed(_of_share(of_mesh, stage, share, recompute), _slowness(of_mesh, replica, stage, context))
                for context, share in enumerate(shares)
            ]
        return self._known[key]


def _slowness(of_mesh, replica, stage, context):
    """Of a context rank: that of the slowest rank that it meets in every layer."""
    pipeline = of_mesh.pipeline
    ranks = pipeline.ranks_of_group(replica, stage)
    if pipeline.experts == 1:
        ranks = ranks[context * pipeline.tensors : (context + 1) * pipeline.tensors]
    return of_mesh.costs.slowness(ranks)


def _of_share(of_mesh, stage, share, recompute):
    """{op: (own duration, PassExchange)} of a rank with a share of a micro-batch."""
    result = {}
    beside_ns = of_mesh.exchanges.beside_ns(stage, share)
    for op, computed in pass_durations(of_mesh.costs, stage, share, recompute, beside_ns).items():
        exchange = of_mesh.exchanges.of_pass(op, stage, share, recompute)
        result[op] = (computed + exchange.added_ns, exchange)
    return result


def _slowed(costs_of, factor):
    """The same on a context rank that is slow; rounded once more."""
    if factor == 1:
        return costs_of
    result = {op: (round_half_up(own * factor), exchange) for op, (own, exchange) in costs_of.items()}
    inputs = result["BACKWARD"][0] - result["BACKWARD_WEIGHT"][0]
    return {**result, "BACKWARD_INPUT": (inputs, costs_of["BACKWARD_INPUT"][1])}
