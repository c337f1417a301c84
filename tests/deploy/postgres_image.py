"""The image `postgres` of compose.yaml, played by Debian's PostgreSQL: the same variables, the same port."""

import pathlib
import pwd
import shutil
import subprocess

from daemon import Daemon


def programs():
    folders = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders else None


def why_not():
    return None if programs() and shutil.which("setpriv") else "PostgreSQL is not installed (package postgresql)"


def as_postgres(*words):
    """Root may not run a server; the package's user may."""
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *map(str, words)]


def initialise(service, folder):
    """What the image's entry point does with an empty volume. folder: open to the package's user. Returns the data folder."""
    variables = service.environment
    secrets = {target: source for source, target, _ in service.mounts}
    password = folder / "password"
    password.write_text(secrets[variables["POSTGRES_PASSWORD_FILE"]].read_text())
    user = pwd.getpwnam("postgres")
    for path in (folder, password):
        shutil.chown(path, user.pw_uid, user.pw_gid)
    data = folder / "data"
    subprocess.run(as_postgres(programs() / "initdb", "--pgdata", data, "--username", variables["POSTGRES_USER"], "--pwfile", password,
                               "--auth=scram-sha-256", "--no-sync"), check=True, stdout=subprocess.DEVNULL, cwd=folder)
    single = subprocess.run(as_postgres(programs() / "postgres", "--single", "-D", data, "postgres"), check=True, cwd=folder, text=True,
                            input=f"CREATE DATABASE {variables['POSTGRES_DB']}\n", capture_output=True)
    if "ERROR" in single.stderr:
        raise SystemExit(f"PostgreSQL makes no database {variables['POSTGRES_DB']}: {single.stderr}")
    return data


def start(service, folder):
    data = initialise(service, folder)
    return Daemon(service.name, as_postgres(programs() / "postgres", "-D", data, "-h", "0.0.0.0", "-k", folder), folder, cwd=folder)
