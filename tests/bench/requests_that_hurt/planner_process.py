"""A planner of the benchmark's own, and calls to it without a client's patience."""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import grpc
from penstock.request import job_of
from penstock.v1 import planner_service_pb2

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "hostile_client"))
from process_view import resident_bytes

SERVICE = "/penstock.v1.PlannerService/"
EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples/gpt_7b.json"
START_SECONDS = 30
SAMPLE_SECONDS = 0.02
LARGEST_MESSAGE = 64 << 20


class PlannerProcess:
    """Starts with the folder's store; `kill` and `start` again as an operator would."""

    def __init__(self, binary, *flags, store=None):
        self.binary, self.flags = binary, flags
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-hurt-")
        self.path = pathlib.Path(self.folder.name)
        self.store = store or f"sqlite:{self.path}/planner.db"
        self.process, self.ports, self.peak = None, {}, 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self.folder.cleanup()

    def start(self):
        port_file = self.path / "ports"
        port_file.unlink(missing_ok=True)
        with (self.path / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "--listen=127.0.0.1:0", f"--store={self.store}", f"--port-file={port_file}", *self.flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS
        while not (port_file.exists() and port_file.read_text().strip()):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the planner does not start: {self.log()[-1000:]}")
            time.sleep(SAMPLE_SECONDS)
        self.ports = json.loads(port_file.read_text())
        self.sampler = threading.Thread(target=self.sample, args=(self.process,), daemon=True)
        self.sampler.start()

    def sample(self, process):
        while process.poll() is None:
            with contextlib.suppress(OSError):
                self.peak = max(self.peak, resident_bytes(process.pid))
            time.sleep(SAMPLE_SECONDS)

    def stop(self, sign=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(sign)
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def lives(self):
        return self.process.poll() is None

    def resident(self):
        return resident_bytes(self.process.pid) if self.lives() else 0

    def log(self):
        return (self.path / "log").read_text(errors="replace")

    def channel(self):
        return channel_to(self.ports["planner_port"])


def channel_to(port):
    """A connection of its own: gRPC shares those with equal options."""
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=[
        ("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ("grpc.max_send_message_length", LARGEST_MESSAGE)])


def call(channel, method, request, timeout=30.0, wait=False):
    """The answer of a method that answers once. Raises grpc.RpcError."""
    answer = getattr(planner_service_pb2, f"{method}Response")
    return channel.unary_unary(
        SERVICE + method, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString)(
            request, timeout=timeout, wait_for_ready=wait)


def outcome(channel, method, request, timeout=30.0):
    """(code, words, seconds) of a call, OK too."""
    begin = time.monotonic()
    try:
        call(channel, method, request, timeout)
        return "OK", "", time.monotonic() - begin
    except grpc.RpcError as error:
        return error.code().name, error.details() or "", time.monotonic() - begin


def stream(channel, request):
    """A stream of programs, as bytes, that is read only where the caller reads it."""
    return channel.unary_stream(
        SERVICE + "StreamPrograms", request_serializer=type(request).SerializeToString,
        response_deserializer=None)(request)


def job(name, pp=1, dp=1, owner="", look_ahead=64, memory=1 << 50):
    """A registration of the example's model, on devices that hold any batch unless `memory` says otherwise."""
    spec = job_of(profile=EXAMPLE, model=None, pp=pp, dp=dp, tp=1, cp=1, options={"memory_limit_bytes": memory})
    spec.job_id, spec.owner, spec.look_ahead_window = name, owner, look_ahead
    return spec


def register(channel, spec, timeout=30.0):
    return outcome(channel, "RegisterJob", planner_service_pb2.RegisterJobRequest(job=spec), timeout)


def submission(name, first, batches):
    """`batches`: lists of lengths, of consecutive iterations."""
    request = planner_service_pb2.SubmitBatchesRequest(job_id=name)
    for place, lengths in enumerate(batches):
        batch = request.batches.add(iteration=first + place)
        for sample, length in enumerate(lengths):
            batch.samples.add(sample_id=sample, target_tokens=length)
    return request
