"""The objects of an installation, and the pods that they would make."""

import dataclasses

CLUSTER_WIDE = {"Namespace", "PriorityClass", "ClusterQueue", "ResourceFlavor"}


@dataclasses.dataclass
class Pods:
    """The pods of one template: all alike but for their index."""

    place: str  # "JobSet/train, workers": for messages.
    labels: dict
    spec: dict
    count: int
    claims: list  # volumeClaimTemplates
    # Of a Job: its spec.
    job: dict | None = None

    def containers(self):
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    def container(self):
        """Of pods with one container, which all of Penstock's are."""
        return self.spec["containers"][0]


def name_of(an_object):
    return an_object["metadata"]["name"]


def title(an_object):
    return f"{an_object['kind']}/{name_of(an_object)}"


class Cluster:
    """What is in the API server when an installation was applied."""

    def __init__(self, objects):
        self.objects = objects

    def of_kind(self, kind):
        return [one for one in self.objects if one["kind"] == kind]

    def find(self, kind, name):
        return next((one for one in self.of_kind(kind) if name_of(one) == name), None)

    def pods(self):
        made = []
        for one in self.objects:
            if one["kind"] in ("StatefulSet", "Deployment"):
                spec = one["spec"]
                made.append(_pods(title(one), spec["template"], spec.get("replicas", 1), spec.get("volumeClaimTemplates", [])))
            elif one["kind"] == "Job":
                made.append(_pods(title(one), one["spec"]["template"], one["spec"].get("parallelism", 1), [], one["spec"]))
            elif one["kind"] == "JobSet":
                for part in one["spec"]["replicatedJobs"]:
                    job = part["template"]["spec"]
                    count = part.get("replicas", 1) * job.get("parallelism", 1)
                    made.append(_pods(f"{title(one)}, {part['name']}", job["template"], count, [], job))
        return made

    def selected(self, selector):
        return [pods for pods in self.pods() if selects(selector, pods.labels)]


def _pods(place, template, count, claims, job=None):
    return Pods(place, template.get("metadata", {}).get("labels", {}), template["spec"], count, claims, job)


def selects(selector, labels):
    """A label selector; an empty one selects everything. matchExpressions are not in use."""
    if "matchExpressions" in selector:
        raise NotImplementedError("matchExpressions")
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
