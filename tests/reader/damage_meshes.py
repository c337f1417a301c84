"""Damages to plans of several meshes side by side (Plan.meshes): to what says whose a replica and a rank is, and to what follows from it."""

import copy

from damage import Damage, Inapplicable
from damage_shares import count_collectives
from meshes import placed_meshes


def _on_several_meshes(change):
    def apply(editor):
        if not editor.plan.meshes:
            raise Inapplicable("meshes")
        change(editor)

    return apply


def _on_plan(change):
    return _on_several_meshes(lambda editor: change(editor.plan))


def _mesh_of_its_own(editor):
    """`meshes` has the only mesh of a plan."""
    plan = editor.plan
    if plan.meshes or plan.options is None or not plan.options.parameter_shares:
        raise Inapplicable("one mesh with parameter_shares")
    only = editor.schema.message("StrategyMesh", {})
    only.mesh, only.layers_per_stage = copy.deepcopy(plan.mesh), list(plan.layers_per_stage)
    only.rank_of_stage = list(plan.options.rank_of_stage)
    plan.meshes = [only]


def _first_alone(plan):
    plan.meshes = plan.meshes[:1]


def _unnamed(plan):
    plan.meshes = []


def _without_shares(plan):
    plan.options.parameter_shares = False


def _other_mesh(plan):
    plan.mesh.data += 1


def _other_first(plan):
    """The second mesh is named where the first one should be."""
    plan.mesh = copy.deepcopy(plan.meshes[1].mesh)
    if plan.mesh == plan.meshes[0].mesh:
        raise Inapplicable("other meshes")


def _one_layer_on(layers_per_stage):
    """One layer goes from a stage that has several to a stage beside it."""
    for index, layers in enumerate(layers_per_stage):
        if layers > 1 and len(layers_per_stage) > 1:
            layers_per_stage[index] -= 1
            layers_per_stage[index + 1 if index == 0 else index - 1] += 1
            return
    raise Inapplicable("stages")


def _layers_of_first(plan):
    _one_layer_on(plan.layers_per_stage)


def _layers_of_options(plan):
    _one_layer_on(plan.options.layers_per_stage)


def _layers_of_later(plan):
    _one_layer_on(_with_stages(plan).layers_per_stage)


def _with_stages(plan):
    """A later mesh that has several."""
    for mesh in plan.meshes[1:]:
        if len(mesh.layers_per_stage) > 1:
            return mesh
    raise Inapplicable("stages of a later mesh")


def _positions_of_options(plan):
    if len(plan.layers_per_stage) < 2:
        raise Inapplicable("stages")
    plan.options.rank_of_stage = list(reversed(range(len(plan.layers_per_stage))))


def _positions_of_later(plan):
    mesh = _with_stages(plan)
    mesh.rank_of_stage = list(reversed(range(len(mesh.layers_per_stage))))


def _one_more(degree):
    """Replicas, or ranks, of the meshes add up to more than the plan has."""

    def change(plan):
        mesh = plan.meshes[-1].mesh
        setattr(mesh, degree, getattr(mesh, degree) + 1)

    return change


def _are_alike(one, other):
    """Whether a replica of one mesh could be of the other as well."""
    same = (one.mesh.pipeline, one.contexts, one.tensors, one.experts) == (other.mesh.pipeline, other.contexts, other.tensors, other.experts)
    return same and (one.layers_per_stage, one.positions) == (other.layers_per_stage, other.positions)


def _replica_of_another(plan):
    """The first mesh has a replica of the last, which then has one less."""
    first, last = plan.meshes[0].mesh, plan.meshes[-1].mesh
    if last.data < 2 or _are_alike(placed_meshes(plan)[0], placed_meshes(plan)[-1]):
        raise Inapplicable("replicas")
    last.data -= 1
    first.data += 1
    plan.mesh = copy.deepcopy(first)


def _degrees_exchanged(plan):
    for item in plan.meshes[1:]:
        contexts, tensors = item.mesh.context or 1, item.mesh.tensor or 1
        if contexts != tensors:
            item.mesh.context, item.mesh.tensor = tensors, contexts
            return
    raise Inapplicable("stage groups of a later mesh")


def _order_of_meshes(plan):
    first, *others = placed_meshes(plan)
    if all(_are_alike(first, other) for other in others):
        raise Inapplicable("meshes that are not alike")
    plan.meshes = [*plan.meshes[1:], plan.meshes[0]]
    plan.mesh = copy.deepcopy(plan.meshes[0].mesh)
    plan.layers_per_stage = list(plan.meshes[0].layers_per_stage)
    plan.options.layers_per_stage = list(plan.meshes[0].layers_per_stage)
    plan.options.rank_of_stage = list(plan.meshes[0].rank_of_stage)


def _swap_replicas(plan, alike):
    """A replica of the first mesh and one of a later mesh change their numbers; `alike`: a replica could be of either."""
    first, *later = placed_meshes(plan)
    for other in later:
        if _are_alike(first, other) == alike:
            break
    else:
        raise Inapplicable("meshes that are alike" if alike else "meshes that are not alike")
    one, two = first.first_replica, other.first_replica
    for replicas in (plan.replicas, plan.topology.replicas):
        replicas[one], replicas[two] = replicas[two], replicas[one]
    for program in plan.programs:
        program.replica = {one: two, two: one}.get(program.replica, program.replica)


def _steps_of_first(editor):
    """All ranks update for as long as those of the first mesh."""
    steps = [program.instructions[-1] for program in editor.plan.programs]
    if all(step.expected_duration_ns == steps[0].expected_duration_ns for step in steps):
        raise Inapplicable("other durations")
    for step in steps:
        step.expected_duration_ns = steps[0].expected_duration_ns


def _groups_of_meshes(editor):
    """Parameters and gradients stay inside each mesh."""
    plan = editor.plan
    for placed in placed_meshes(plan):
        for rank in placed.ranks:
            for item in plan.programs[rank].instructions:
                if editor.op(item) in ("RESHARD", "OPTIMIZER_STEP"):
                    item.collective.group = len(plan.groups)
        plan.groups.append(editor.schema.message("CollectiveGroup", {"ranks": list(placed.ranks)}))
    count_collectives(plan)


DAMAGES_TO_MESHES = [
    Damage("meshes of one mesh", ["structure"], _mesh_of_its_own),
    *(Damage(name, topics, change) for name, topics, change in (
        ("meshes without all but the first", ["structure"], _on_plan(_first_alone)),
        ("no meshes", ["structure"], _on_plan(_unnamed)),
        ("meshes without shares of parameters", ["structure"], _on_plan(_without_shares)),
        ("a mesh that is none of meshes", ["structure"], _on_plan(_other_mesh)),
        ("the second mesh as the plan's", ["structure"], _on_plan(_other_first)),
        ("layers of the first mesh", ["structure"], _on_plan(_layers_of_first)),
        ("layers of a later mesh", ["topology"], _on_plan(_layers_of_later)),
        ("positions of a later mesh", ["origin"], _on_plan(_positions_of_later)),
        ("replicas of meshes that do not add up", ["structure"], _on_plan(_one_more("data"))),
        ("ranks of meshes that do not add up", ["structure"], _on_plan(_one_more("pipeline"))),
        ("a replica more of the first mesh, one less of the last", ["structure", "topology"], _on_plan(_replica_of_another)),
        ("context and tensor ranks of a later mesh exchanged", ["structure", "rule 7", "shapes"], _on_plan(_degrees_exchanged)),
        ("order of meshes", ["structure", "topology"], _on_plan(_order_of_meshes)),
        ("replicas of two meshes swapped", ["topology"], _on_plan(lambda plan: _swap_replicas(plan, alike=False))),
        ("replicas of two meshes that are alike swapped", ["topology"], _on_plan(lambda plan: _swap_replicas(plan, alike=True))),
        ("updates as on the first mesh", ["durations"], _on_several_meshes(_steps_of_first)),
        ("RESHARDs of each mesh alone", ["rule 5"], _on_several_meshes(_groups_of_meshes)),
        ("layers of the first mesh in the options", ["origin"], _on_plan(_layers_of_options)),
        ("positions of the first mesh in the options", ["origin"], _on_plan(_positions_of_options)),
    )),
]
