"""One thing that is run, with a limit of time, and what came of it."""
import os
import signal
import subprocess
import tempfile
import time

GRACE_S = 8


class Outcome:
    """`outcome` is "passed", "failed", "skipped" or "not run"; `reason` says why where it did not pass."""

    def __init__(self, name, outcome, reason="", seconds=0.0, figures=None):
        self.name = name
        self.outcome = outcome
        self.reason = reason
        self.seconds = seconds
        self.figures = figures or {}

    def as_json(self):
        return {"name": self.name, "outcome": self.outcome, "reason": self.reason, "seconds": round(self.seconds, 1),
                "figures": self.figures}


class Ended:
    """How a command ended. `status` is None where its time was up."""

    def __init__(self, status, output, errors, seconds):
        self.status = status
        self.output = output
        self.errors = errors
        self.seconds = seconds

    def reason(self, limit_s):
        """Why it did not pass; "" where it did."""
        if self.status == 0:
            return ""
        what = "did not end within {:.0f} s".format(limit_s) if self.status is None else "exit status {}".format(self.status)
        tail = " | ".join(line.strip() for line in (self.errors or self.output).strip().splitlines()[-6:])
        return what + (": " + tail if tail else "")


def end_group(process):
    """Ends a command and all that it started: kindly, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue


def run(command, environment, limit_s):
    """Blocks for little more than `limit_s`."""
    start = time.monotonic()
    # Files: a process that outlives its parent would keep a pipe open.
    with tempfile.TemporaryFile("w+", errors="replace") as output, tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=errors, start_new_session=True)
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(process)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read())
    return Ended(status, texts[0], texts[1], time.monotonic() - start)
