"""The protocol of c10d's TCPStore as a stranger speaks it who reaches rank 0's port (QueryType in TCPStoreBackend.hpp)."""

import struct

VALIDATE, SET, LIST_KEYS = 0, 1, 17
MAGIC = 0x3C85F7CE
MOST_BYTES = 1 << 20


def _bytes(data):
    return struct.pack("<Q", len(data)) + data


def hello():
    return bytes([VALIDATE]) + struct.pack("<I", MAGIC)


def set_value(key, value):
    return bytes([SET]) + _bytes(key) + _bytes(value)


def read_exactly(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def list_keys(connection):
    """Of a connection that has said hello."""
    connection.sendall(bytes([LIST_KEYS]))
    (count,) = struct.unpack("<Q", read_exactly(connection, 8))
    keys = []
    for _ in range(min(count, 10_000)):
        (length,) = struct.unpack("<Q", read_exactly(connection, 8))
        if length > MOST_BYTES:
            raise ConnectionError("no TCPStore")
        keys.append(read_exactly(connection, length))
    return keys
