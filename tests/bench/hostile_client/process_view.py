"""What the kernel says of a process: memory, file descriptors, ports on which it listens."""

import pathlib
import socket

LISTENING = "0A"


def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def listening_ports(pid):
    """Over IPv4."""
    sockets = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(entry.readlink()))
        except OSError:
            continue
    ports = []
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == LISTENING and f"socket:[{words[9]}]" in sockets:
            ports.append(int(words[1].split(":")[1], 16))
    return ports


def accepts(port, seconds=0.3):
    """Whether a connection is made."""
    try:
        with socket.create_connection(("127.0.0.1", port), seconds):
            return True
    except OSError:
        return False


def children(pid):
    """Of all generations."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found
