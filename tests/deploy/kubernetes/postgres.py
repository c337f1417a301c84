"""A PostgreSQL of the machine's own, in a folder, on a port of the local address: what stands in for overlays/ha's."""

import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile

from processes import Process, wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from free_ports import free_ports  # noqa: E402

USER, DATABASE = "penstock", "penstock"


def programs():
    """Debian's folder of the newest version; None: not installed."""
    return max(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=pathlib.Path("/none/initdb")).parent


def why_not():
    if not (programs() / "initdb").exists():
        return "PostgreSQL is not installed (package postgresql)"
    return None


def _as_server_user(words):
    """Root may not run a server; the package's user may."""
    if os.getuid():
        return words
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=QUIT", *words]


def _run(words, **others):
    subprocess.run(_as_server_user(words), check=True, capture_output=True, timeout=60, **others)


class Server(Process):
    """Asks for the password, as the image does."""

    def __init__(self, password):
        # Not below a test's folder, which others than its owner may not enter.
        self.place = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.place.name)
        secret = folder / "password"
        secret.write_text(password)
        if not os.getuid():
            user = pwd.getpwnam("postgres")
            for path in (folder, secret):
                shutil.chown(path, user.pw_uid, user.pw_gid)
        self.port = free_ports(1)
        data = folder / "data"
        _run([programs() / "initdb", "--pgdata", data, "--username", USER, "--pwfile", secret, "--auth=scram-sha-256", "--no-sync",
              "--encoding=UTF8", "--locale=C"], cwd=folder)
        super().__init__(_as_server_user([programs() / "postgres", "-D", data, "-p", self.port, "-k", folder, "-c", "listen_addresses=127.0.0.1",
                                          "-c", "shared_buffers=16MB", "-c", "fsync=off"]), folder / "postgres.log")
        ready = [programs() / "pg_isready", "--quiet", "--host=127.0.0.1", f"--port={self.port}"]
        wait_until("PostgreSQL", lambda: subprocess.run(ready, check=False, timeout=10).returncode == 0, 60)
        _run([programs() / "createdb", "--host=127.0.0.1", f"--port={self.port}", f"--username={USER}", DATABASE],
             env={**os.environ, "PGPASSWORD": password}, cwd=folder)

    def __exit__(self, *_):
        # At once: its data are not needed any more.
        self.process.terminate()
        self.grace = 20
        self.stop()
        self.place.cleanup()
