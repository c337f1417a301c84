"""The planner's spans, read with OpenTelemetry's own messages (the package opentelemetry-proto of PyPI), and our text of these messages
against them. PENSTOCK_PLANNER and PENSTOCK_PROTOC name the programs."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
import unittest
from concurrent import futures
from pathlib import Path

# First: see there.
from planner_process import MESH, PATIENCE, PlannerProcess

import grpc
import penstock
from google.protobuf import descriptor_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

ROOT = Path(__file__).resolve().parents[3]
PROTOC = os.environ["PENSTOCK_PROTOC"]
THEIRS = [trace_service_pb2, trace_pb2, resource_pb2, common_pb2]
OPTIONS = {"layers_per_stage": [8, 8, 8, 8]}


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes spans as a collector does, on a free port."""

    def __init__(self, test: unittest.TestCase) -> None:
        self._changed = threading.Condition()
        self._spans: list[tuple[dict[str, object], trace_pb2.Span]] = []
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, server)
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        test.addCleanup(lambda: server.stop(None).wait())

    def Export(self, request, context):  # noqa: N802, as gRPC wants it
        with self._changed:
            for process in request.resource_spans:
                for scope in process.scope_spans:
                    self._spans += [(values_of(process.resource.attributes), span) for span in scope.spans]
            self._changed.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans_of_whole_batches(self, batches: int) -> list[tuple[dict[str, object], trace_pb2.Span]]:
        """Waits until so many batches have their root, which comes last."""
        end = time.monotonic() + PATIENCE
        with self._changed:
            while sum(span.name == "batch" for _, span in self._spans) < batches:
                if not self._changed.wait(end - time.monotonic()):
                    raise TimeoutError([span.name for _, span in self._spans])
            return list(self._spans)


def values_of(attributes) -> dict[str, object]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def types_of(file: descriptor_pb2.FileDescriptorProto):
    """Messages and enums of a file by their full names."""
    waiting = [(file.package, message) for message in file.message_type]
    while waiting:
        scope, message = waiting.pop()
        name = f"{scope}.{message.name}"
        yield name, message
        waiting += [(name, nested) for nested in message.nested_type]
        yield from ((f"{name}.{enum.name}", enum) for enum in message.enum_type)


class OurText(unittest.TestCase):
    def setUp(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "descriptors"
            files = [module.DESCRIPTOR.name for module in THEIRS]
            subprocess.run([PROTOC, f"-I{ROOT / 'proto'}", f"--descriptor_set_out={found}", *files], check=True)
            self.ours = descriptor_pb2.FileDescriptorSet.FromString(found.read_bytes()).file
        self.theirs = {}
        self.methods = {}
        for module in THEIRS:
            file = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            self.theirs.update(types_of(file))
            self.methods.update((f"{file.package}.{service.name}", service.method) for service in file.service)

    def test_has_the_numbers_and_types_of_theirs(self) -> None:
        compared = 0
        for file in self.ours:
            for name, ours in types_of(file):
                theirs = self.theirs[name]
                if isinstance(ours, descriptor_pb2.EnumDescriptorProto):
                    self.assertEqual([(one.name, one.number) for one in ours.value], [(one.name, one.number) for one in theirs.value])
                    continue
                fields = {one.name: one for one in theirs.field}
                for field in ours.field:
                    there = fields[field.name]
                    for what in ("number", "type", "label", "type_name"):
                        self.assertEqual(getattr(field, what), getattr(there, what), f"{name}.{field.name}: {what}")
                    compared += 1
        self.assertGreater(compared, 20)

    def test_has_the_service_of_theirs(self) -> None:
        services = [(f"{file.package}.{service.name}", service) for file in self.ours for service in file.service]
        self.assertEqual([name for name, _ in services], ["opentelemetry.proto.collector.trace.v1.TraceService"])
        for name, service in services:
            ours = [(one.name, one.input_type, one.output_type) for one in service.method]
            self.assertEqual(ours, [(one.name, one.input_type, one.output_type) for one in self.methods[name]])


class Spans(unittest.TestCase):
    def test_of_a_batch_are_one_trace_that_a_collector_reads(self) -> None:
        collector = Collector(self)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        planner = PlannerProcess(self, folder.name, "--store=memory", f"--otlp-endpoint={collector.address}")
        client = penstock.Client(planner.address)
        self.addCleanup(client.close)
        job = client.job("traced", options=OPTIONS, **MESH)
        job.submit([{1: 900, 2: 120, 3: 3000, 4: 65}], 0)
        for rank in range(job.ranks):
            self.assertEqual(next(job.programs(rank)).iteration, 0)
        job.report(0)

        spans = collector.spans_of_whole_batches(1)
        expected = ["batch", *["deliver"] * job.ranks, "plan", "queue", "submit", "verify"]
        self.assertEqual(sorted(span.name for _, span in spans), expected)
        root = next(span for _, span in spans if span.name == "batch")
        self.assertEqual((len(root.trace_id), len(root.span_id), root.parent_span_id), (16, 8, b""))
        for resource, span in spans:
            with self.subTest(span.name):
                self.assertEqual(resource["service.name"], "penstock-planner")
                self.assertEqual(span.trace_id, root.trace_id)
                self.assertEqual(span.parent_span_id, b"" if span is root else root.span_id)
                # Nothing that these messages do not know.
                self.assertEqual(span.SerializeToString(), self._known_part(span))
                attributes = values_of(span.attributes)
                self.assertEqual((attributes["penstock.job"], attributes["penstock.iteration"]), ("traced", 0))
                self.assertLess(abs(time.time_ns() - span.start_time_unix_nano), 3600 * 10**9)
                self.assertLessEqual(span.start_time_unix_nano, span.end_time_unix_nano)
        ranks = [values_of(span.attributes)["penstock.rank"] for _, span in spans if span.name == "deliver"]
        self.assertEqual(sorted(ranks), list(range(job.ranks)))

    def _known_part(self, span: trace_pb2.Span) -> bytes:
        known = trace_pb2.Span()
        known.CopyFrom(span)
        known.DiscardUnknownFields()
        return known.SerializeToString()


if __name__ == "__main__":
    unittest.main()
