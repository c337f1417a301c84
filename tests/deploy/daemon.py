"""A process of a test, with its output in a file; gone with its scope."""

import signal
import subprocess
import time


class Daemon:
    """SIGTERM at the end of its scope, SIGKILL where that does not help within 15 s."""

    def __init__(self, name, words, folder, **more):
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def fail(self, what):
        raise SystemExit(f"{self.name}: {what}; the end of its log:\n{self.log.read_text()[-3000:]}")

    def wait(self, seconds):
        """Until it ends, with status 0."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.fail(f"not done after {seconds} s")
        if status != 0:
            self.fail(f"ended with {status}")

    def wait_until(self, is_there, seconds, what):
        """Until is_there() while the process lives."""
        end = time.monotonic() + seconds
        while not is_there():
            if self.process.poll() is not None:
                self.fail(f"ended with {self.process.returncode} before {what}")
            if time.monotonic() > end:
                self.fail(f"no {what} after {seconds} s")
            time.sleep(0.1)
