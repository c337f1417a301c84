"""A planner that outlives runs, so that it can be asked about them afterwards.

    with planner(bin, folder) as address:            # "127.0.0.1:41234"
"""
import contextlib
import json
import pathlib
import subprocess
import time

# A planner says where it listens within so many seconds.
START_SECONDS = 30


@contextlib.contextmanager
def planner(bin_folder, folder, *flags):
    """Its address. `flags`: more of the planner's."""
    ports = pathlib.Path(folder, "ports.json")
    command = [f"{bin_folder}/penstock-planner", "--listen=127.0.0.1:0", "--store=memory", f"--port-file={ports}", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not ports.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the planner does not listen")
            time.sleep(0.05)
        yield f"127.0.0.1:{json.loads(ports.read_text())['planner_port']}"
    finally:
        process.terminate()
        process.wait()
        ports.unlink(missing_ok=True)
