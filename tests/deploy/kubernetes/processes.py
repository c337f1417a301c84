"""Processes with their output in files, which end with their scope; waiting."""

import contextlib
import signal
import subprocess
import time


class TooLate(Exception):
    """What was waited for did not come."""


def wait_until(what, condition, seconds, pause=0.05):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TooLate(f"{what}: not within {seconds} s")
        time.sleep(pause)


class Process:
    def __init__(self, words, log, environment=None, grace=10):
        self.log = log
        self.grace = grace
        with log.open("w") as output:
            self.process = subprocess.Popen(list(map(str, words)), stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=log.parent)

    def ended(self):
        return self.process.poll() is not None

    def status(self):
        return self.process.poll()

    def stop(self):
        """SIGTERM, and SIGKILL when the grace is over, as a kubelet does. The exit status."""
        if not self.ended():
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(self.grace)
        if not self.ended():
            self.process.kill()
            self.process.wait()
        return self.status()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
