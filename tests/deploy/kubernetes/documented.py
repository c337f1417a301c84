"""Folders that docs/kubernetes.md tells users to make: kubectl renders them, with the user's images."""

import pathlib
import re
import tempfile

from cluster import Cluster
from installations import ROOT, RenderError, render_path

EXAMPLE = re.compile(r"```\n# (\S+)/kustomization\.yaml\n(.*?)```", re.DOTALL)


def _problems(kubectl, folder, name, text):
    path = folder / name
    path.mkdir()
    (path / "kustomization.yaml").write_text(text)
    try:
        pods = Cluster(render_path(kubectl, path)).pods()
    except RenderError as error:
        yield str(error)
        return
    for pod in pods:
        if not pod.container()["image"].startswith("REGISTRY/"):
            yield f"{pod.place}: image {pod.container()['image']} is not the user's"


def problems(kubectls):
    examples = EXAMPLE.findall((ROOT / "docs/kubernetes.md").read_text())
    if not examples:
        yield "docs/kubernetes.md: shows no folder of the user's own"
    for kubectl in kubectls:
        with tempfile.TemporaryDirectory() as folder:
            # Where the page says that the repository is.
            (pathlib.Path(folder) / "penstock").symlink_to(ROOT)
            for name, text in examples:
                for problem in _problems(kubectl, pathlib.Path(folder), name, text):
                    yield f"docs/kubernetes.md: {name}: {kubectl}: {problem}"
