"""`penstock up` with one of its ranks held at a share of a core: stopped and let go again, fifty times a second.

    held_rank.run(["penstock", "up", ..., "--run-dir", run], run, rank=1)
"""
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "hostile_client"))

from process_view import children  # noqa: E402

# Seconds of a turn in which the rank is stopped, and in which it runs.
STOPPED, RUNS = 0.008, 0.012
SHARE = RUNS / (STOPPED + RUNS)


def worker_of(up, rank):
    """The pid of a rank's worker; None: it is not there yet, or no longer."""
    try:
        for pid in children(up):
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if os.path.basename(words[0]) == "penstock-worker" and f"--rank={rank}" in words:
                return pid
    except OSError:
        pass
    return None


def trains(run):
    """Whether an iteration is done: what comes before it, building the model and finding the others, is not held."""
    metrics = pathlib.Path(run, "metrics.jsonl")
    return metrics.exists() and metrics.stat().st_size > 0


def hold(up, pid):
    """Until `up` ends. Moments are absolute, so that what the host takes between them is not added up."""
    turn = time.monotonic()
    while up.poll() is None:
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(max(0, turn + STOPPED - time.monotonic()))
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            up.wait()
            return
        turn += STOPPED + RUNS
        time.sleep(max(0, turn - time.monotonic()))


def run(command, run_dir, rank):
    """Ends this program where the command fails. `rank` None: nobody is held."""
    with open(f"{run_dir}.log", "w") as log, subprocess.Popen(command, stdout=log, stderr=log) as up:
        while rank is not None and up.poll() is None:
            pid = worker_of(up.pid, rank) if trains(run_dir) else None
            if pid is not None:
                hold(up, pid)
            time.sleep(0.02)
        up.wait()
    if up.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {up.returncode}:\n{pathlib.Path(f'{run_dir}.log').read_text()[-3000:]}")
