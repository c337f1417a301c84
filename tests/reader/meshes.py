"""The meshes of a plan, one or several side by side, and which replicas and ranks are whose (execution.md, section 1)."""

from dataclasses import dataclass

from schema import Message


@dataclass(frozen=True)
class PlacedMesh:
    """A mesh, its stages, and where its replicas and ranks begin among those of the plan."""

    # Of messages: "mesh", or "meshes[i]" of several.
    name: str
    mesh: Message
    layers_per_stage: list
    rank_of_stage: list
    first_replica: int
    first_rank: int

    @property
    def contexts(self):
        return self.mesh.context or 1

    @property
    def tensors(self):
        return self.mesh.tensor or 1

    @property
    def experts(self):
        return self.mesh.expert or 1

    @property
    def group_size(self):
        return self.contexts * self.tensors

    @property
    def replicas(self):
        return range(self.first_replica, self.first_replica + self.mesh.data)

    @property
    def rank_count(self):
        return self.mesh.pipeline * self.mesh.data * self.group_size

    @property
    def ranks(self):
        return range(self.first_rank, self.first_rank + self.rank_count)

    @property
    def positions(self):
        """Of each stage."""
        return self.rank_of_stage or list(range(len(self.layers_per_stage)))


def placed_meshes(plan):
    """A PlacedMesh of each mesh of a plan; all of them are set."""
    if not plan.meshes:
        positions = plan.options.rank_of_stage if plan.options is not None else []
        return [PlacedMesh("mesh", plan.mesh, plan.layers_per_stage, positions, 0, 0)]
    result = []
    replica = rank = 0
    for index, item in enumerate(plan.meshes):
        result.append(PlacedMesh(f"meshes[{index}]", item.mesh, item.layers_per_stage, item.rank_of_stage, replica, rank))
        replica, rank = result[-1].replicas.stop, result[-1].ranks.stop
    return result
