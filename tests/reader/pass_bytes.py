"""Bytes that each instruction takes and gives back (execution.md, section 8): recomputed once, whoever asks for it."""

import rules
from memory import stage_bytes
from memory_units import ELEMENT_BYTES


class PassBytes:
    """Of the instructions of a plan. `world_costs`: what its ranks cost."""

    def __init__(self, reading, world_costs):
        self._reading = reading
        self._world_costs = world_costs
        self._known = {}

    def of(self, rank, item):
        """(taken, given back) of an instruction."""
        reading = self._reading
        op = reading.op(item)
        if op in ("REDUCE_GRADIENTS", "RESHARD", "OPTIMIZER_STEP"):
            return 0, 0
        known = self._of_stage(rank, item.micro_batch, reading.pipeline_of(rank).stages[item.stage])
        return known.taken(op, item.part, reading.forward_only), known.given_back(op, item.part, reading.forward_only)

    def _of_stage(self, rank, index, stage):
        """Of a micro-batch on a stage at the place of a rank."""
        replica, of_mesh = self._reading.replica_of(rank), self._world_costs.of_rank(rank)
        key = (replica, index, stage.index, of_mesh.pipeline.place(rank))
        if key not in self._known:
            self._known[key] = self._stage_bytes(rank, index, stage, replica, of_mesh)
        return self._known[key]

    def _stage_bytes(self, rank, index, stage, replica, of_mesh):
        reading, pipeline, costs = self._reading, of_mesh.pipeline, of_mesh.costs
        element = ELEMENT_BYTES[reading.dtype]
        boundaries = range(len(pipeline.stages) - 1)
        crossing = [0, *(rules.product(rules.expected_shape(reading, rank, index, boundary)) * element for boundary in boundaries), 0]
        recompute = reading.plan.replicas[replica].micro_batches[index].recompute[stage.index]
        share = reading.share(replica, index, pipeline.context(rank))
        tokens = share.sums.source_tokens + share.sums.target_tokens
        token_bytes = reading.plan.model.hidden * element if pipeline.tensors > 1 else 0
        key_value_bytes = of_mesh.exchanges.key_value_bytes() if share.divided_tokens else 0
        carried = share.cut_tokens * key_value_bytes * (1 + stage.longest_dense_run)
        rows = costs.rows(share.sums) if stage.layers("decoder") else 0
        transient = (2 * tokens * token_bytes, share.divided_tokens * key_value_bytes, rows, carried)
        return stage_bytes(costs, stage, share.sums, recompute, crossing[stage.index : stage.index + 2], transient, token_bytes)
