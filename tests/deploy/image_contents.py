"""What an image must and must not hold, and where its bytes are."""

import hashlib
import json
import os
import pathlib
import re
import stat

SHELLS = {"sh", "bash", "dash", "busybox"}
PACKAGE_MANAGERS = {"apt", "apt-get", "dpkg", "pip", "pip3", "python3", "perl"}
WRITABLE = {"/tmp", "/var/lib/penstock"}
LABELS = ("title", "description", "version", "revision", "source", "licenses")


def files(root):
    for folder, _, names in os.walk(root):
        for name in names:
            path = pathlib.Path(folder) / name
            if not path.is_symlink():
                yield path


def size_of_parts(root):
    """Bytes by where they come from, the whole last."""
    parts = {"programs": 0, "Debian's libraries": 0, "LibTorch": 0, "CUDA's libraries": 0, "records, licences, bill of materials": 0}
    for path in files(root):
        name = "/" + str(path.relative_to(root))
        bytes_of_file = path.stat().st_size
        if name.startswith("/usr/local/bin/"):
            parts["programs"] += bytes_of_file
        elif "/torch/lib/" in name:
            parts["LibTorch"] += bytes_of_file
        elif "/nvidia/" in name:
            parts["CUDA's libraries"] += bytes_of_file
        elif ".so" in path.name and not name.startswith("/usr/share/"):
            parts["Debian's libraries"] += bytes_of_file
        else:
            parts["records, licences, bill of materials"] += bytes_of_file
    parts["whole"] = sum(parts.values())
    return parts


def unwanted(root):
    """Programs to break in with, and files that anybody may change or that give rights."""
    for path in root.rglob("*"):
        name = "/" + str(path.relative_to(root))
        if path.is_symlink():
            continue
        mode = path.stat().st_mode
        if path.name in SHELLS | PACKAGE_MANAGERS and path.is_file() and mode & 0o111:
            yield f"{name}: a program that the image does without"
        if mode & (stat.S_ISUID | stat.S_ISGID):
            yield f"{name}: runs as another user"
        if name not in WRITABLE and (path.stat().st_uid != 0 or mode & stat.S_IWOTH):
            yield f"{name}: not root's alone to change"


def digest(path, algorithm):
    return hashlib.file_digest(path.open("rb"), algorithm).hexdigest()


def urlsafe_sha256(path):
    """As a wheel's RECORD has it."""
    import base64

    raw = hashlib.file_digest(path.open("rb"), "sha256").digest()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def debian_digests(root):
    """{digest: package} of every file of the packages that the image has records of."""
    digests = {}
    for path in (root / "var/lib/dpkg/status.d").glob("*.md5sums"):
        for line in path.read_text().splitlines():
            digests[line.split()[0]] = path.name.removesuffix(".md5sums")
    return digests


def wheel_digests(root):
    digests = {}
    for record in root.rglob("*.dist-info/RECORD"):
        name = re.sub(r"[-_.]+", "-", record.parent.name.split("-")[0]).lower()
        for line in record.read_text().splitlines():
            found = re.match(r"(.*),sha256=([^,]*),\d*$", line)
            if found:
                digests[found.group(2)] = name
    return digests


def wrong_bill(root, name, version):
    """Of the bill of materials: not valid SPDX, or a library in the image that nothing it lists accounts for, by digest."""
    bill = json.loads((root / "usr/share/doc/penstock/sbom.spdx.json").read_text())
    packages = {package["SPDXID"]: package for package in bill["packages"]}
    if len(packages) != len(bill["packages"]):
        yield "bill of materials: an SPDXID stands for two packages"
    for relation in bill["relationships"]:
        for end in (relation["spdxElementId"], relation["relatedSpdxElement"]):
            if end != "SPDXRef-DOCUMENT" and end not in packages:
                yield f"bill of materials: {end} is related and not listed"
    if (name, version) not in {(package["name"], package["versionInfo"]) for package in packages.values()}:
        yield f"bill of materials: {name} {version} is not in it"
    listed = {re.sub(r"[-_.]+", "-", package["name"]).lower() for package in packages.values()}
    debian, wheels = debian_digests(root), wheel_digests(root)
    for path in files(root):
        if ".so" not in path.name or str(path.relative_to(root)).startswith("usr/share/"):
            continue
        owner = debian.get(digest(path, "md5")) or wheels.get(urlsafe_sha256(path))
        if owner is None:
            yield f"/{path.relative_to(root)}: of no package that the image has a record of, or changed"
        elif re.sub(r"[-_.]+", "-", owner).lower() not in listed:
            yield f"/{path.relative_to(root)}: {owner} is not in the bill of materials"


def invalid_spdx(root):
    """By the tools of SPDX itself, where they are installed (PyPI: spdx-tools)."""
    try:
        from spdx_tools.spdx.parser.parse_anything import parse_file
        from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
    except ImportError:
        return
    document = parse_file(str(root / "usr/share/doc/penstock/sbom.spdx.json"))
    for message in validate_full_spdx_document(document):
        yield f"bill of materials: {message.validation_message}"


def wrong_configuration(image, name):
    user = image.user.split(":")[0]
    if not user.isdigit() or int(user) == 0:
        yield f"{name}: USER {image.user}: a number other than 0 lets Kubernetes see that it is not root"
    for volume in image.volumes:
        owner = (image.root / volume.lstrip("/")).stat().st_uid
        if str(owner) != user:
            yield f"{name}: VOLUME {volume} is of user {owner}: a new volume would be, too, and {user} could not write to it"
    if not image.entrypoint or not image.entrypoint[0].startswith("/"):
        yield f"{name}: ENTRYPOINT {image.entrypoint}: not a program by its path, in exec form"
    for label in LABELS:
        value = image.labels.get(f"org.opencontainers.image.{label}", "")
        if value in ("", "unknown", "unversioned"):
            yield f"{name}: label org.opencontainers.image.{label} is '{value}'"
    served = {int(port) for word in image.command for port in re.findall(r"-listen=\S*:(\d+)", word)}
    if served != set(image.ports):
        yield f"{name}: EXPOSE {sorted(image.ports)}, but it listens on {sorted(served)}"
