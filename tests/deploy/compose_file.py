"""deploy/compose.yaml, read as docker compose reads it: of what it may say, what it says."""

import dataclasses
import pathlib

import yaml

# Everything else in a service ends the test: what is not understood is not tested.
KNOWN = {"image", "entrypoint", "command", "environment", "env_file", "volumes", "secrets", "ports", "depends_on", "healthcheck",
         "restart", "stop_grace_period", "read_only", "cap_drop", "security_opt"}


@dataclasses.dataclass
class Service:
    name: str
    image: str
    entrypoint: list | None
    command: list | None
    environment: dict
    # (source, target, "ro" or "rw"): a path on this machine, or the name of a volume.
    mounts: list
    # (port on this machine, port of the service).
    ports: list
    # service -> condition
    depends_on: dict
    healthcheck: list | None
    read_only: bool
    fields: dict


def read_environment_file(path):
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def mount(text, folder, volumes):
    source, target, *mode = text.split(":")
    if source.startswith("."):
        source = (folder / source).resolve()
    elif source not in volumes:
        raise SystemExit(f"compose.yaml: {text}: there is no volume {source}")
    return source, target, mode[0] if mode else "rw"


class ComposeFile:
    """`secrets`: stands in for the folder secrets beside the file, so that a test has its own."""

    def __init__(self, path, secrets):
        self.text = yaml.safe_load(path.read_text())
        self.folder = path.parent
        self.secrets = secrets
        self.services = {name: self._service(name, fields) for name, fields in self.text["services"].items()}

    def _at(self, path):
        """A path that the file names."""
        parts = pathlib.PurePosixPath(path).parts
        return self.secrets.joinpath(*parts[1:]) if parts[0] == "secrets" else self.folder / path

    def _service(self, name, fields):
        unknown = set(fields) - KNOWN
        if unknown:
            raise SystemExit(f"compose.yaml: service {name}: the test does not understand {', '.join(sorted(unknown))}")
        environment = {key: str(value) for key, value in fields.get("environment", {}).items()}
        for file in fields.get("env_file", []):
            environment = {**read_environment_file(self._at(file)), **environment}
        depends_on = fields.get("depends_on", {})
        if isinstance(depends_on, list):
            depends_on = {other: {"condition": "service_started"} for other in depends_on}
        test = fields.get("healthcheck", {}).get("test")
        return Service(
            name=name, image=fields["image"], entrypoint=fields.get("entrypoint"), command=fields.get("command"), environment=environment,
            mounts=self._mounts(fields), ports=[tuple(int(port) for port in text.split(":")[-2:]) for text in fields.get("ports", [])],
            depends_on={other: how["condition"] for other, how in depends_on.items()}, healthcheck=test[1:] if test else None,
            read_only=fields.get("read_only", False), fields=fields)

    def _mounts(self, fields):
        mounts = []
        for text in fields.get("volumes", []):
            source, target, mode = mount(text, self.folder, self.text["volumes"])
            if isinstance(source, pathlib.Path) and source.is_relative_to(self.folder / "secrets"):
                source = self.secrets / source.relative_to(self.folder / "secrets")
            mounts.append((source, target, mode))
        for secret in fields.get("secrets", []):
            mounts.append((self._at(self.text["secrets"][secret]["file"]), f"/run/secrets/{secret}", "ro"))
        return mounts
