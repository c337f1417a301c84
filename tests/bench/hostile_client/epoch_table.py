"""The table in which workers meet (worker/rendezvous) as a stranger speaks to it who reaches rank 0's port."""

import struct

CHALLENGE_BYTES = PROOF_BYTES = 32
SET = 1


def _text(data):
    return struct.pack("<I", len(data)) + data


def set_value(key, value):
    return _text(bytes([SET]) + bytes(8) + _text(value) + _text(key))


def read_exactly(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data
