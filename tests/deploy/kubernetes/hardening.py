"""What Kubernetes' restricted profile asks of pods, and what keeps one from taking a node with it."""

import re

from installations import ROOT


def _user_of_the_images():
    """The numeric user that the Dockerfile makes."""
    return set(map(int, re.findall(r"\b[1-9]\d{4}\b", (ROOT / "Dockerfile").read_text())))


def _version():
    return re.search(r"project\(penstock VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def _pod(pods):
    context = pods.spec.get("securityContext", {})
    if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
        yield "securityContext: runs as root"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "securityContext: seccompProfile is not RuntimeDefault"
    if pods.spec.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken: gets a token of the Kubernetes API that it has no use for"
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pods.spec.get(field):
            yield f"{field}: the node's own"
    for volume in pods.spec.get("volumes", []):
        if "hostPath" in volume:
            yield f"volume {volume['name']}: hostPath"
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield f"volume {volume['name']}: emptyDir without sizeLimit"


def _container(container):
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
        yield "securityContext: allowPrivilegeEscalation is not false"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "securityContext: readOnlyRootFilesystem is not true"
    if context.get("capabilities", {}).get("drop") != ["ALL"] or "add" in context["capabilities"]:
        yield "securityContext: capabilities are not dropped"
    resources = container.get("resources", {})
    if not {"cpu", "memory"} <= set(resources.get("requests", {})):
        yield "resources: requests no cpu or no memory"
    if "memory" not in resources.get("limits", {}):
        yield "resources: no limit of memory"


def _image(pods, container):
    name, _, tag = container["image"].partition(":")
    if not tag or tag == "latest":
        yield f"image {container['image']}: names no version"
    if not name.startswith("penstock-"):
        return
    if tag.removesuffix("-cuda") != _version():
        yield f"image {container['image']}: is not of version {_version()}"
    if pods.spec.get("securityContext", {}).get("runAsUser") not in _user_of_the_images():
        yield "securityContext: runAsUser is not the user of the images"


def _probes(pods, container):
    """Servers have all three, jobs none: they serve nothing, and end."""
    expected = set() if pods.job is not None else {"startupProbe", "livenessProbe", "readinessProbe"}
    found = {field for field in container if field.endswith("Probe")}
    if found != expected:
        yield f"{', '.join(sorted(found ^ expected))}: has {sorted(found)}, in place of {sorted(expected)}"


def problems(cluster):
    for pods in cluster.pods():
        for problem in _pod(pods):
            yield f"{pods.place}: {problem}"
        for container in pods.containers():
            for problem in (*_container(container), *_image(pods, container), *_probes(pods, container)):
                yield f"{pods.place}: {container['name']}: {problem}"
