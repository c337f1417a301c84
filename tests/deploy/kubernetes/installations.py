"""What is applied together, and what kubectl makes of it."""

import pathlib
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy/kubernetes"

# As docs/kubernetes.md combines them.
INSTALLATIONS = {
    "base": ("base", "data"),
    "dev": ("overlays/dev",),
    "tls and monitoring": ("base", "overlays/tls", "overlays/monitoring"),
    "gpu": ("base/planner", "overlays/tls", "overlays/gpu"),
    "kueue": ("base/planner", "overlays/tls", "overlays/kueue"),
    "ha": ("overlays/ha", "overlays/tls", "overlays/monitoring", "base/job"),
}


class RenderError(Exception):
    """kubectl refuses a folder."""


def all_folders():
    """Every folder that can be applied, as it is named in INSTALLATIONS."""
    return sorted(path.parent.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("kustomization.yaml"))


def identity(an_object):
    metadata = an_object.get("metadata", {})
    return an_object.get("apiVersion"), an_object.get("kind"), metadata.get("namespace", ""), metadata.get("name")


def render(kubectl, folder):
    """The objects of one folder of deploy/kubernetes."""
    return render_path(kubectl, FOLDER / folder)


def render_path(kubectl, path):
    """Of any folder, in the order of their identities."""
    made = subprocess.run([kubectl, "kustomize", str(path)], capture_output=True, text=True, check=False, timeout=60)
    if made.returncode:
        raise RenderError(f"{path}: {kubectl} kustomize: {made.stderr.strip()}")
    objects = [one for one in yaml.safe_load_all(made.stdout) if one]
    return sorted(objects, key=lambda one: tuple(map(str, identity(one))))


def problems_between_versions(kubectls):
    """Old and new kubectl make the same of every folder."""
    for folder in all_folders():
        made = [render(kubectl, folder) for kubectl in kubectls]
        for kubectl, objects in zip(kubectls[1:], made[1:]):
            if objects != made[0]:
                yield f"{folder}: {kubectl} makes something else of it than {kubectls[0]}"


def installation(kubectl, name):
    return [one for folder in INSTALLATIONS[name] for one in render(kubectl, folder)]
