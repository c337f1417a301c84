"""Which shared libraries a program loads, and which Debian packages they are of."""

import pathlib
import re
import subprocess

# Comes with the machine's driver, which the container runtime adds.
DRIVER = {"libcuda.so.1"}


def loaded_libraries(binary):
    """Paths as the loader finds them: names, mostly links, below which a library is looked for."""
    answer = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
    missing = set(re.findall(r"^\s*(\S+) => not found", answer, re.MULTILINE)) - DRIVER
    if missing:
        raise SystemExit(f"{binary} needs {', '.join(sorted(missing))}, which this machine does not have")
    return [pathlib.Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", answer, re.MULTILINE)]


def debian_packages(paths):
    """Names of the packages that files are of, by their real paths; packages that are older than the merge of /lib and /usr/lib know
    them by the former."""
    names = {name: path for path in paths for name in (str(path), str(path).removeprefix("/usr"))}
    # Fails where one name is unknown, which one of each two mostly is.
    answer = subprocess.run(["dpkg-query", "-S", *sorted(names)], check=False, capture_output=True, text=True).stdout
    found = {}
    for line in answer.splitlines():
        package, _, name = line.rpartition(": ")
        if name in names:
            found[names[name]] = package.split(",")[0]
    unknown = sorted(str(path) for path in paths if path not in found)
    if unknown:
        raise SystemExit(f"of no Debian package and no wheel: {', '.join(unknown)}: of a wheel, say with --wheels where it is")
    return sorted(set(found.values()))
