"""Command lines in manifests, against what the binaries accept and what the manifests give them."""

import functools
import re
import subprocess

from installations import ROOT

# Read without a flag that names them; all other variables must be used by an argument. (JOB_COMPLETION_INDEX is set by Kubernetes.)
READ_FROM_ENVIRONMENT = {
    "penstock-planner": {"PGPASSWORD"},
    "postgres": {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD", "PGDATA"},
}
# What a worker takes its rank from where no --rank is given.
RANK_VARIABLE = "JOB_COMPLETION_INDEX"
# Flags whose value is a file or folder (a prefix of them), and whether it is written.
PATHS = {"--tls-cert": False, "--tls-key": False, "--tls-client-ca": False, "--tls-ca": False, "--dataset": False, "--profile": False,
         "--lengths": False, "--checkpoint-dir": True}
UNITS = {"MB": 1 << 20, "GB": 1 << 30, "Mi": 1 << 20, "Gi": 1 << 30, "": 1}


def size(text):
    """Bytes of "4GB" (which the binaries take as GiB) or "6Gi"."""
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]*)", text).groups()
    return int(number) * UNITS[unit]


def _help(binaries, *words):
    made = subprocess.run([f"{binaries}/{words[0]}", *words[1:], "--help"], capture_output=True, text=True, check=False, timeout=60)
    if made.returncode:
        raise SystemExit(f"{' '.join(words)} --help: {made.stderr}")
    return made.stdout


@functools.cache
def accepted_flags(binaries, words):
    """Of a program, or of one of its commands: each flag, and whether it takes a value. None: there is no such command."""
    text = _help(binaries, words[0])
    if len(words) > 1:
        if not re.search(rf"^  {words[1]} ", text, re.MULTILINE):
            return None
        text = _help(binaries, *words)
    # "  --listen TEXT=127.0.0.1:0   host:port ...", "  --reflection   serve ..."
    lines = re.findall(r"^  (?:-\w,)?(--[\w-]+)( \S)?", text, re.MULTILINE)
    return {flag: bool(value) for flag, value in lines}


class CommandLine:
    """Of a container of Penstock's."""

    def __init__(self, container):
        self.words = tuple(container.get("command", []))
        self.arguments = container.get("args", [])
        self.program = self.words[0] if self.words else container["image"].partition(":")[0]
        pairs = [argument.partition("=") for argument in self.arguments]
        self.flags = {flag: value for flag, _, value in pairs}
        self.repeated = sorted({flag for flag, _, _ in pairs if sum(one == flag for one, _, _ in pairs) > 1})

    def is_penstock(self):
        return self.program.startswith("penstock")


def _flags(line, binaries):
    accepted = accepted_flags(binaries, line.words)
    if accepted is None:
        yield f"{line.words[0]} has no command {line.words[1]}"
        return
    for argument in line.arguments:
        flag, equals, _ = argument.partition("=")
        if flag not in accepted:
            yield f"{flag}: {' '.join(line.words)} has no such flag"
        elif bool(equals) != accepted[flag]:
            yield f"{argument}: {flag} takes {'a' if accepted[flag] else 'no'} value"
    for flag in line.repeated:
        yield f"{flag}: is there twice"


def _environment(line, container):
    names = [variable["name"] for variable in container.get("env", [])]
    used = set(re.findall(r"\$\((\w+)\)", " ".join(line.arguments)))
    for name in sorted(used - set(names)):
        yield f"$({name}): there is no such variable"
    for name in names:
        if name not in used and name not in READ_FROM_ENVIRONMENT.get(line.program, ()):
            yield f"env {name}: nobody reads it"


def _paths(line, container):
    mounts = {mount["mountPath"]: not mount.get("readOnly", False) for mount in container.get("volumeMounts", [])}
    paths = {flag: (line.flags[flag], written) for flag, written in PATHS.items() if flag in line.flags}
    if line.flags.get("--store", "").startswith("sqlite:"):
        paths["--store"] = (line.flags["--store"].removeprefix("sqlite:"), True)
    for flag, (path, written) in paths.items():
        mount = next((one for one in mounts if path.startswith(one + "/")), None)
        if mount is None:
            yield f"{flag}: {path} is on no volume"
        elif written and not mounts[mount]:
            yield f"{flag}: {path} is written, and {mount} is mounted readOnly"


def health_services():
    """Names that grpc.health.v1 answers for."""
    text = (ROOT / "common/grpc/service_names.h").read_text()
    return {""} | set(re.findall(r'"(penstock\.v1\.[^"]+)"', text))


def _listeners(line, container):
    """By their --flag: the port."""
    ports = {}
    for flag in ("--listen", "--metrics-listen", "--health-listen"):
        host, _, port = line.flags.get(flag, "").rpartition(":")
        if host != "0.0.0.0":
            yield f"{flag}: '{line.flags.get(flag)}' is reached from no other pod"
            return
        ports[flag] = int(port)
    declared = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
    expected = {"grpc": ports["--listen"], "metrics": ports["--metrics-listen"], "health": ports["--health-listen"]}
    if declared != expected:
        yield f"ports: {declared} are not those of the flags, {expected}"
    for field in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container.get(field, {}).get("grpc", {})
        if probe.get("port") != ports["--health-listen"]:
            yield f"{field}: port {probe.get('port')} is not that of --health-listen"
        if probe.get("service", "") not in health_services():
            yield f"{field}: service {probe['service']}: the planner knows no such service"


def _planner(line, pods, container):
    yield from _listeners(line, container)
    limit = size(container["resources"]["limits"]["memory"])
    # The rest is for what is not batches, plans and reports.
    if size(line.flags.get("--memory", "4GB")) > limit * 3 / 4:
        yield f"--memory: {line.flags.get('--memory', '4GB')} is too near to the limit of memory"
    if float(line.flags.get("--drain-seconds", 2)) >= pods.spec.get("terminationGracePeriodSeconds", 30):
        yield "--drain-seconds: terminationGracePeriodSeconds is over before"
    if line.flags.get("--planning-threads") != "$(CPU_LIMIT)" or "cpu" not in container["resources"]["limits"]:
        yield "--planning-threads: is not the limit of cpu"
    knows_callers = "--tls-client-ca" in line.flags or "--tokens" in line.flags
    if knows_callers == ("--allow-anyone" in line.flags):
        yield "--allow-anyone: either this or --tls-client-ca"


def _metrics_of_worker(line, container):
    declared = {port["name"]: str(port["containerPort"]) for port in container.get("ports", [])}
    host, _, port = line.flags.get("--metrics-listen", "").rpartition(":")
    if host != "0.0.0.0":
        yield "--metrics-listen: is reached from no other pod"
    if declared != {"metrics": port}:
        yield f"ports: {declared} are not that of --metrics-listen, {port}"


def _worker(line, pods, container):
    yield from _metrics_of_worker(line, container)
    if "--rank" in line.flags:
        yield f"--rank: all pods of a template would have one; a pod's is in {RANK_VARIABLE}"
    if line.flags.get("--host") != "$(POD_IP)":
        yield "--host: is not the pod's address, and no other worker reaches it"
    stop = int(line.flags.get("--stop-seconds", 20)) if "--checkpoint-dir" in line.flags else 0
    # Beside --stop-seconds a worker takes some seconds to end (kShutdownGrace).
    if stop + 10 > pods.spec.get("terminationGracePeriodSeconds", 30):
        yield "--stop-seconds: terminationGracePeriodSeconds is over before"
    gpus = container["resources"].get("limits", {}).get("nvidia.com/gpu", 0)
    on_gpu = line.flags.get("--device", "cpu").startswith("cuda")
    if on_gpu != (gpus == 1) or on_gpu != container["image"].endswith("-cuda"):
        yield f"--device: {line.flags.get('--device')} with {gpus} GPUs and the image {container['image']}"


def problems(cluster, binaries):
    for pods in cluster.pods():
        for container in pods.containers():
            line = CommandLine(container)
            found = [*_environment(line, container)]
            if line.is_penstock():
                found += [*_flags(line, binaries), *_paths(line, container)]
            if line.program == "penstock-planner":
                found += _planner(line, pods, container)
            if line.program == "penstock-worker":
                found += _worker(line, pods, container)
            yield from (f"{pods.place}: {container['name']}: {problem}" for problem in found)
