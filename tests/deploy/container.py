"""Runs an image's root file system as a container runtime does, without one: own mounts, read-only root, the image's user without
capabilities or new privileges, the image's environment, volumes. Needs root.

Network and processes are those of the caller: `isolate_network` gives a whole test a network of its own first, in which the ports and
names of services are free.
"""

import ctypes
import dataclasses
import os
import pathlib
import subprocess

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000

# Arguments: ROOT WRITABLE(yes|no) USER:GROUP, pairs SOURCE TARGET (SOURCE:ro: read-only), "--", NAME=VALUE..., "--", the command.
START = """
set -euo pipefail
root=$1 writable=$2 user=$3
shift 3
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/dev" "$root/etc"
touch "$root/etc/hosts"
while [ "$1" != -- ]; do
  if [ -d "${1%:ro}" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; touch "$root$2"; fi
  mount --bind "${1%:ro}" "$root$2"
  if [ "$1" != "${1%:ro}" ]; then mount -o remount,bind,ro "$root$2"; fi
  shift 2
done
shift
mount --bind /etc/hosts "$root/etc/hosts"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
if [ "$writable" = no ]; then mount -o remount,bind,ro "$root"; fi
environment=()
while [ "$1" != -- ]; do environment+=("$1"); shift; done
shift
# By their paths: PATH is the image's from here on.
exec env -i "${environment[@]}" "$(command -v setpriv)" --no-new-privs "$(command -v chroot)" \\
  --userspec="$user" --groups="${user#*:}" "$root" "$@"
"""


@dataclasses.dataclass
class Image:
    """What is in it, and what it says of how it is run (words as in a Dockerfile)."""

    root: pathlib.Path
    user: str = "0:0"
    entrypoint: list = dataclasses.field(default_factory=list)
    command: list = dataclasses.field(default_factory=list)
    environment: dict = dataclasses.field(default_factory=dict)
    volumes: list = dataclasses.field(default_factory=list)
    ports: list = dataclasses.field(default_factory=list)
    healthcheck: list = dataclasses.field(default_factory=list)
    labels: dict = dataclasses.field(default_factory=dict)


def container_words(image, command, mounts=(), environment=None, read_only=True):
    """The command line that runs `command` in a container of the image. mounts: (source, target, "ro" or "rw")."""
    words = ["unshare", "--mount", "--propagation", "private", "bash", "-c", START, "container",
             str(image.root), "no" if read_only else "yes", image.user]
    for source, target, mode in mounts:
        words += [f"{source}:ro" if mode == "ro" else str(source), target]
    variables = [f"{name}={value}" for name, value in {**image.environment, **(environment or {})}.items()]
    return [*words, "--", *variables, "--", *command]


def whole_command(image, command=None, entrypoint=None):
    """Entry point and arguments, each from the image unless given."""
    if entrypoint is None:
        return [*image.entrypoint, *(image.command if command is None else command)]
    return [*entrypoint, *(command or [])]


def new_volume(image, folder):
    """An empty folder that the image's user may write to, as a runtime makes a volume of the image's own folder."""
    folder.mkdir(parents=True, exist_ok=True)
    user, group = (int(number) for number in image.user.split(":"))
    os.chown(folder, user, group)
    return folder


def why_not():
    """Why containers cannot be run here; None: they can."""
    if os.geteuid() != 0:
        return "containers without a runtime need root"
    probe = subprocess.run(["unshare", "--mount", "--net", "--propagation", "private", "true"], check=False, capture_output=True, text=True)
    return None if probe.returncode == 0 else f"no name spaces here: {probe.stderr.strip()}"


def unshare(flags):
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def isolate_mounts():
    """What this process and those that it starts mount is seen by them alone, and gone with them."""
    unshare(CLONE_NEWNS)


def isolate_network(names, folder):
    """This process and what it starts get mounts and a network of their own, with nothing but a loopback interface, in which each name
    is this machine."""
    unshare(CLONE_NEWNS | CLONE_NEWNET)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {' '.join(names)}\n")
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
