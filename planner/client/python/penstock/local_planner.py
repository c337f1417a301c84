"""A planner of one's own: the installed program, as a process of this one's."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.client import Client


class LocalPlanner:
    """A planner process that ends with `close`. `client`: a Client of it; `address`: its "host:port"."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, folder: tempfile.TemporaryDirectory[str]) -> None:
        self._process = process
        self._folder = folder
        self.address = address
        self.client = Client(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stops the planner, by force where it takes longer than 10 s."""
        self.client.close()
        _stop(self._process)
        self._folder.cleanup()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _program(binary: str | None) -> str:
    """The path of `binary`, or of what is installed. Raises FileNotFoundError."""
    found = shutil.which(binary or "penstock-planner")
    if found is None and binary is None:
        with contextlib.suppress(ImportError):
            found = str(import_module("penstock_planner").BINARY)
    if found is None:
        raise FileNotFoundError(
            f"binary: there is no program {binary or 'penstock-planner'!r}; give its path, or pip install penstock-planner"
        )
    return found


def local(binary: str | None = None, *, timeout: float = 10.0) -> LocalPlanner:
    """Starts a planner on a free port of this machine alone; it keeps nothing on disk.

    binary   the program, a name or a path; None: penstock-planner of the PATH, or of the Python package penstock-planner

    Raises FileNotFoundError without the program, RuntimeError (with what it said) where it ends at once, TimeoutError where it
    does not listen in `timeout` seconds.
    """
    path = _program(binary)
    folder = tempfile.TemporaryDirectory(prefix="penstock-")
    port_file, log = Path(folder.name) / "port", Path(folder.name) / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [path, "--listen=127.0.0.1:0", "--store=memory", f"--port-file={port_file}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        port = _port(process, port_file, log, time.monotonic() + timeout)
    except BaseException:
        _stop(process)
        folder.cleanup()
        raise
    return LocalPlanner(process, f"127.0.0.1:{port}", folder)


def _port(process: subprocess.Popen[bytes], port_file: Path, log: Path, end: float) -> int:
    while time.monotonic() < end:
        text = port_file.read_text(encoding="utf-8").strip() if port_file.exists() else ""
        if text:
            return int(json.loads(text)["planner_port"])
        if process.poll() is not None:
            raise RuntimeError(f"binary: the planner ended with {process.returncode}: {log.read_text(errors='replace')}")
        time.sleep(0.01)
    raise TimeoutError(f"binary: the planner does not listen: {log.read_text(errors='replace')}")
