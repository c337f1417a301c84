"""Images that buildah has built, as containers of ours."""

import json
import pathlib
import subprocess

import container


def builder_in(folder):
    """buildah with its flags, whose store is in a folder: layers are overlays where the file system takes them; otherwise (vfs) each is a
    copy of all below it, which takes minutes more and some 50 GB."""
    for driver in ("overlay", "vfs"):
        builder = ["buildah", f"--storage-driver={driver}", "--root", str(folder / "store"), "--runroot", str(folder / "run")]
        if subprocess.run([*builder, "info"], check=False, capture_output=True).returncode == 0:
            return builder
    raise RuntimeError(f"buildah has no store in {folder}: `{' '.join(builder)} info` says why")


def buildah(builder, *words):
    return subprocess.run([*builder, *words], check=True, capture_output=True, text=True).stdout.strip()


def unpack(builder, name):
    """An image's root file system and configuration. builder: buildah with its flags."""
    working = buildah(builder, "from", "--pull-never", name)
    root = pathlib.Path(buildah(builder, "mount", working))
    config = json.loads(buildah(builder, "inspect", "--type", "image", name))["Docker"]["config"]
    check = config.get("Healthcheck") or {}
    test = check.get("Test") or ["NONE"]
    # Empty ones are left out.
    return container.Image(
        root=root, user=config["User"], entrypoint=config["Entrypoint"], command=config.get("Cmd") or [],
        environment=dict(variable.split("=", 1) for variable in config.get("Env") or []), volumes=list(config.get("Volumes") or {}),
        ports=[int(port.split("/")[0]) for port in config.get("ExposedPorts") or {}], labels=config.get("Labels") or {},
        healthcheck=test[1:] if test[0] == "CMD" else [])
