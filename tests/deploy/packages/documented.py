"""What docs/packages.md and dpkg say that packages depend on, and which packages their programs need."""

import pathlib
import re


def dependencies(document):
    """{package: names that it depends on beside those of shared libraries}, from the rows of the document's table of packages:
    | `package` | what is in it | `name`, `name` |"""
    rows = re.findall(r"^\| `(\S+)` \|[^|]*\|([^|]*)\|$", document, re.MULTILINE)
    return {package: set(re.findall(r"`([^`]+)`", names)) for package, names in rows}


def declared_dependencies(package, run):
    """Of alternatives the first."""
    depends = run("dpkg-query", "--show", "--showformat=${Depends}", package)
    return {re.match(r"[^\s:(|]+", part).group() for part in depends.split(", ") if part}


def owners_of_loaded_libraries(package, run):
    """Packages of the libraries that the package's own programs and libraries name, without what those load in turn."""
    places = set()
    for name in run("dpkg", "--listfiles", package).splitlines():
        if is_elf(pathlib.Path(name)):
            places |= named_libraries(name, run)
    return owners_of(places, run)


def is_elf(path):
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def named_libraries(name, run):
    """Paths, as the loader finds them."""
    places = dict(re.findall(r"^\s*(\S+) (?:=> (\S+) )?\(0x", run("ldd", name), re.MULTILINE))
    found = set()
    for library in re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "--dynamic", name)):
        # The loader itself is shown by its path alone.
        place = places.get(library) or next((other for other in places if other.endswith(f"/{library}")), None)
        if place is None:
            raise AssertionError(f"{name} needs {library}, which is not on this machine")
        found.add(pathlib.Path(place).resolve())
    return found


def owners_of(paths, run):
    """Packages know files by their paths in /lib or in /usr/lib."""
    either = {name: path for path in paths for name in (str(path), str(path).removeprefix("/usr"))}
    if not either:
        return set()
    owners = {}
    # Fails where one name is unknown, which one of each two mostly is.
    for line in run("bash", "-c", 'dpkg --search "$@" 2>/dev/null || true', "dpkg", *either).splitlines():
        package, _, name = line.rpartition(": ")
        owners[either[name]] = package.split(":")[0]
    if unknown := paths - owners.keys():
        raise AssertionError(f"of no package: {sorted(map(str, unknown))}")
    return set(owners.values())
