"""A real Slurm on this machine, in a folder of its own and on free ports: munged, slurmctld and one slurmd."""

import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from free_ports import free_ports  # noqa: E402

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "sinfo")
# Debian keeps daemons where users have no PATH to.
SEARCHED = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
START_SECONDS = 60

CONFIGURATION = """
ClusterName=penstock
SlurmctldHost={node}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
JobRequeue=1
KillWait=30
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={node} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 {gres} State=UNKNOWN
PartitionName=all Nodes={node} Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    """Why there can be no Slurm here; empty where there can."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=SEARCHED) is None]
    if missing:
        return f"no {', '.join(missing)}: install slurmctld, slurmd, slurm-client and munge"
    if os.geteuid() != 0:
        return "slurmd starts jobs as root alone"
    return ""


class SlurmCluster:
    """Gone, with all its jobs, with its scope. GPUs are files: Slurm gives them out, and nobody computes on them."""

    def __init__(self, folder, cpus, gpus=0):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(mode=0o755)
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        node = socket.gethostname().split(".")[0]
        self.configuration = self.folder / "slurm.conf"
        self.configuration.write_text(CONFIGURATION.format(
            node=node, user=getpass.getuser(), folder=self.folder, controller_port=free_ports(1), node_port=free_ports(1), cpus=cpus,
            gres=f"Gres=gpu:{gpus}" if gpus else ""))
        devices = [self.folder / f"gpu{number}" for number in range(gpus)]
        for device in devices:
            device.touch()
        (self.folder / "gres.conf").write_text("".join(f"Name=gpu File={device}\n" for device in devices))
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        self.environment = {**os.environ, "PATH": SEARCHED, "SLURM_CONF": str(self.configuration)}
        self.daemons = []

    def __enter__(self):
        try:
            self._start("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket",
                        f"--key-file={self.folder}/munge.key", f"--pid-file={self.folder}/munged.pid",
                        f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munged.seed")
            self._wait(lambda: (self.folder / "munge.socket").exists(), "munged")
            self._start("slurmctld", "-D", "-f", self.configuration)
            self._start("slurmd", "-D", "-f", self.configuration)
            self._wait(lambda: self.run("sinfo", "--noheader", "--format=%t", check=False).strip() == "idle", "the node")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name, daemon in reversed(self.daemons):
            if name == "slurmd":
                subprocess.run(["scancel", "--full", "--signal=KILL", f"--user={getpass.getuser()}"], env=self.environment, timeout=30,
                               check=False, capture_output=True)
            daemon.terminate()
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _start(self, name, *arguments):
        with (self.folder / f"{name}.out").open("w") as output:
            self.daemons.append((name, subprocess.Popen([shutil.which(name, path=SEARCHED), *map(str, arguments)], env=self.environment,
                                                        stdout=output, stderr=subprocess.STDOUT)))

    def _wait(self, condition, what):
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            for name, daemon in self.daemons:
                if daemon.poll() is not None:
                    raise RuntimeError(f"{name} ended: {(self.folder / (name + '.out')).read_text()[-2000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what} is not there after {START_SECONDS} s")
            time.sleep(0.1)

    def run(self, *words, check=True, environment=None):
        done = subprocess.run(list(map(str, words)), env={**self.environment, **(environment or {})}, text=True, capture_output=True,
                              timeout=60, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stderr}")
        return done.stdout

    def state(self, job):
        """JobState and Restarts of a job."""
        shown = dict(word.split("=", 1) for word in self.run("scontrol", "show", "job", job).split() if "=" in word)
        return shown["JobState"], int(shown["Restarts"])
