"""A planner's program as tests start it: PENSTOCK_PLANNER names it. Import this before penstock."""

from __future__ import annotations

import json
import os
import subprocess
import time
import unittest
from pathlib import Path

# A planner is started while a client is there: gRPC must not close its connections for that.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

from penstock.local_planner import LocalPlanner, local  # noqa: E402

ROOT = Path(__file__).resolve().parents[4]
PROFILE = str(ROOT / "examples/gpt_7b.json")
PLANNER = os.environ["PENSTOCK_PLANNER"]
# The example's accelerator has 80 GB, and four stages of the model fit.
MESH = {"profile": PROFILE, "pp": 4, "dp": 2}
# For a program to listen, on a machine that is busy.
PATIENCE = 60.0


class PlannerProcess:
    """A planner of one test, or of all of a class, killed at its end. `address`: where it listens, the same when it is started again."""

    def __init__(self, test: unittest.TestCase | type[unittest.TestCase], folder: str, *flags: str) -> None:
        self._port_file = Path(folder) / "port"
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        (test.addClassCleanup if isinstance(test, type) else test.addCleanup)(self.kill)
        self.start("127.0.0.1:0")
        self.address = f"127.0.0.1:{self._port()}"

    def start(self, listen: str = "") -> None:
        """Returns before it listens."""
        arguments = [PLANNER, f"--listen={listen or self.address}", f"--port-file={self._port_file}", *self._flags]
        self._process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _port(self) -> int:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            text = self._port_file.read_text(encoding="utf-8") if self._port_file.exists() else ""
            if text:
                return int(json.loads(text)["planner_port"])
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"the planner ended with {self._process.returncode}")
            time.sleep(0.01)
        raise TimeoutError("the planner does not listen")


class WithAPlanner(unittest.TestCase):
    """Tests of a class that share one planner."""

    planner: LocalPlanner

    @classmethod
    def setUpClass(cls) -> None:
        cls.planner = local(PLANNER)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.planner.close()
