"""All ranks of a plan: whose mesh each is of, and the groups that they form (execution.md, sections 1 and 5)."""

from meshes import placed_meshes
from stages import Pipeline


class World:
    """The Pipelines of a plan, one for each mesh, and what all ranks have in common."""

    def __init__(self, plan, is_t5, element_bytes):
        # Whether parameters lie in shares of all ranks, from which each iteration brings them to the stages.
        self.parameter_shares = plan.options is not None and plan.options.parameter_shares
        self.pipelines = [Pipeline(plan, placed, is_t5, element_bytes) for placed in placed_meshes(plan)]
        self._of_replica = [pipeline for pipeline in self.pipelines for _ in pipeline.replicas]
        self._of_rank = {rank: pipeline for pipeline in self.pipelines for rank in pipeline.ranks}

    @property
    def ranks(self):
        return sorted(self._of_rank)

    @property
    def replicas(self):
        """How many there are in all meshes."""
        return len(self._of_replica)

    def pipeline_of(self, rank):
        return self._of_rank[rank]

    def pipeline_of_replica(self, replica):
        return self._of_replica[replica]

    def groups(self):
        """Plan.groups."""
        return self._update_groups() + self._joint_groups()

    def _joint_groups(self):
        """Those that run passes together: the stage groups of several ranks."""
        return [ranks for pipeline in self.pipelines if pipeline.group_size > 1 for ranks in pipeline.stage_groups()]

    def _update_groups(self):
        """Those that sum gradients and update parameters."""
        if self.parameter_shares:
            return [self.ranks]
        # Several meshes have shares always.
        pipeline, *_ = self.pipelines
        reducers = [pipeline.reducers(stage, tensor) for stage in pipeline.stages for tensor in range(pipeline.tensors)]
        return reducers + [pipeline.ranks_of_replica(replica) for replica in pipeline.replicas]

    def group_of(self, op, rank, stage_index):
        """Index in Plan.groups of those with whom a rank runs a collective; None: the contract knows none."""
        pipeline = self.pipeline_of(rank)
        if op == ("REDUCE_GRADIENTS" if self.parameter_shares else "RESHARD"):
            return None
        if op == "REDUCE_GRADIENTS":
            return stage_index * pipeline.tensors + pipeline.tensor(rank)
        if op == "RESHARD" or (op == "OPTIMIZER_STEP" and self.parameter_shares):
            return 0
        if op == "OPTIMIZER_STEP":
            return len(pipeline.stages) * pipeline.tensors + pipeline.replica_of(rank)
        found = next((index for index, ranks in enumerate(self._joint_groups()) if rank in ranks), None)
        return None if found is None else len(self._update_groups()) + found
