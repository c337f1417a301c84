"""A copy of this machine that systemd boots: to install packages for real, with services, without changing this machine and without a
network. Needs root.

The copy sees /usr, /etc and /var as they are here, or in the folder of another system; what it writes goes to a folder beside. It has processes, a network (of loopback
alone), a host name and control groups of its own, and ends with its only service, which is the command that it is given.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

SYSTEMD = pathlib.Path("/lib/systemd/systemd")
# Arguments: FOLDER (of what is written, and of the root), SYSTEM, the command's unit, pairs SOURCE TARGET that are mounted.
BOOT = """
set -euo pipefail
folder=$1 system=${2%/} unit=$3 root=$1/root
shift 3
mkdir "$root"
mount -t tmpfs -o mode=755 none "$root"
cd "$root"
mkdir usr etc var proc dev sys run root home
mkdir -m 1777 tmp
for name in usr etc var; do
  mkdir -p "$folder/$name" "$folder/$name.work"
  mount -t overlay overlay -o "lowerdir=$system/$name,upperdir=$folder/$name,workdir=$folder/$name.work" $name
done
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
mount -t proc proc proc
# Of the kernel, which is this machine's, nothing can be changed.
for name in sys sysrq-trigger; do
  [ -e proc/$name ] || continue
  mount --bind proc/$name proc/$name
  mount -o remount,bind,ro proc/$name
done
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for name in run dev; do mount -t tmpfs -o mode=755 none $name; done
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 none dev/shm
while [ $# -gt 0 ]; do
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  shift 2
done
ip link set lo up
# Neither this machine's disks, nor its word on whether services may be started.
: >etc/fstab
rm -f usr/sbin/policy-rc.d
mv "$unit" etc/systemd/system/command.service
mount --move . /
exec chroot . setpriv --bounding-set -sys_module,-sys_time,-sys_rawio,-syslog,-mac_admin,-mac_override \
  env -i container=test PATH=/usr/sbin:/usr/bin "$SYSTEMD" --system --unit=command.service --show-status=no --log-target=null
"""
# Its command and output are not in /tmp, which a boot empties.
UNIT = """
[Service]
Type=oneshot
ExecStart={command}
ExecStopPost=/bin/sh -c 'systemctl exit $EXIT_STATUS'
StandardOutput=file:{output}
StandardError=inherit
TimeoutStartSec={seconds}
"""


def control_groups():
    """Where control groups of version 2 are mounted here; None: nowhere."""
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return pathlib.Path(place)
    return None


def why_not():
    """Why a copy cannot be booted here; None: it can."""
    if os.geteuid() != 0:
        return "a copy of this machine needs root"
    missing = [program for program in ("unshare", "dpkg", "ip") if shutil.which(program) is None]
    if missing or not SYSTEMD.exists():
        return f"no {' and no '.join([*missing, *([] if SYSTEMD.exists() else ['systemd'])])}"
    if control_groups() is None:
        return "no control groups of version 2"
    words = ["unshare", "--mount", "--pid", "--fork", "--net", "--cgroup", "--propagation", "private", "grep", "-q", "overlay",
             "/proc/filesystems"]
    probe = subprocess.run(words, check=False, capture_output=True, text=True)
    return None if probe.returncode == 0 else f"no name spaces or no overlay file system here: {probe.stderr.strip()}"


@contextlib.contextmanager
def own_control_group():
    """The file to which a process writes its id to be in it. Empty at the end: the copy's first process takes all others with it."""
    group = control_groups() / f"penstock-test-{os.getpid()}"
    group.mkdir()
    try:
        yield group / "cgroup.procs"
    finally:
        end = time.monotonic() + 10
        while any(procs.read_text() for procs in group.rglob("cgroup.procs")) and time.monotonic() < end:
            time.sleep(0.05)
        for child in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            child.rmdir()
        group.rmdir()


def run_on_a_copy(command, folder, mounts, seconds, system="/"):
    """Exit status and output of the command (a program of the copy and its arguments). folder: empty. mounts: {source: target}. system:
    the root of what is copied."""
    folder = pathlib.Path(folder)
    (folder / "output").mkdir()
    unit = folder / "command.service"
    unit.write_text(UNIT.format(command=" ".join(command), output="/root/output/text", seconds=seconds))
    pairs = [str(word) for pair in {**mounts, folder / "output": "/root/output"}.items() for word in pair]
    with own_control_group() as processes:
        words = ["bash", "-c", 'echo $$ >"$0" && exec "$@"', processes, "unshare", "--cgroup", "--mount", "--pid", "--fork", "--uts",
                 "--ipc", "--net", "--propagation", "private", "--kill-child", "bash", "-c", BOOT, "boot", folder, system, unit, *pairs]
        environment = {**os.environ, "SYSTEMD": str(SYSTEMD)}
        with subprocess.Popen(list(map(str, words)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              start_new_session=True) as copy:
            try:
                said, _ = copy.communicate(timeout=seconds + 30)
            except subprocess.TimeoutExpired:
                os.killpg(copy.pid, signal.SIGKILL)
                said, _ = copy.communicate()
                said += f"not done after {seconds + 30} s\n"
    text = folder / "output/text"
    return copy.returncode, said + (text.read_text() if text.exists() else "")
