"""HTTP/2 as a hostile client needs it: frames as it likes them (RFC 9113), header fields as plain literals (RFC 7541, 6.2.2)."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS = 1, 4
CANCEL = 8
LARGEST_FRAME = 16384


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def string(text):
    """Not Huffman-coded; the length is an integer of a 7-bit prefix."""
    data = text if isinstance(text, bytes) else text.encode()
    length = len(data)
    if length < 127:
        return bytes([length]) + data
    encoded, length = bytearray([127]), length - 127
    while length >= 128:
        encoded.append(length % 128 + 128)
        length //= 128
    encoded.append(length)
    return bytes(encoded) + data


def header_block(fields):
    return b"".join(b"\0" + string(name) + string(value) for name, value in fields)


def grpc_headers(path, more=()):
    return header_block([(":method", "POST"), (":scheme", "https"), (":path", path), (":authority", "localhost"), ("te", "trailers"),
                         ("content-type", "application/grpc"), *more])


def grpc_message(body, length=None):
    return struct.pack(">BI", 0, len(body) if length is None else length) + body


def call(stream, path, body, more=()):
    """A whole call with one message."""
    return (frame(HEADERS, END_HEADERS, stream, grpc_headers(path, more)) + frame(DATA, END_STREAM, stream, grpc_message(body)))


class FrameReader:
    """Takes bytes as they come and gives the frames (kind, flags, stream, payload) that are whole."""

    def __init__(self):
        self.rest = b""

    def feed(self, data):
        self.rest += data
        while len(self.rest) >= 9:
            length = int.from_bytes(self.rest[:3], "big")
            if len(self.rest) < 9 + length:
                return
            kind, flags, stream = struct.unpack(">BBI", self.rest[3:9])
            payload, self.rest = self.rest[9:9 + length], self.rest[9 + length:]
            yield kind, flags, stream & 0x7FFFFFFF, payload
