"""The package without a planner's program: shares beside examples/shares/shares.py, and the clients at a server in this process.

The messages must be there (penstock/v1): pip install, or protoc --python_out.
"""

import asyncio
import re
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from google.protobuf import json_format

ROOT = Path(__file__).resolve().parents[4]
# Behind an installed one, or that of tests/make_package.
sys.path.append(str(ROOT / "planner/client/python"))
sys.path.insert(0, str(ROOT / "examples/shares"))

import penstock
import shares as example
from penstock import errors
from penstock.channel import Security, options_of, target_of
from penstock.plan import plan_of
from penstock.v1 import job_pb2, plan_pb2, planner_service_pb2

PROFILE = str(ROOT / "examples/gpt_7b.json")
LENGTHS = [(0, 9), (4, 13), (7, 1), (3, 37), (16, 16)]


def planned(layout: int, context: int) -> plan_pb2.PlannedBatch:
    """One micro-batch of all LENGTHS in another order, with spans of 1, 2 and 4 context ranks in turn."""
    samples = [plan_pb2.Sample(sample_id=i, input_tokens=a, target_tokens=b) for i, (a, b) in enumerate(LENGTHS)]
    micro_batch = plan_pb2.MicroBatch(samples=[3, 0, 4, 2, 1], layout=layout)
    rows = 5
    if layout == job_pb2.LAYOUT_PADDED:
        micro_batch.target_length = 40
    if layout == job_pb2.LAYOUT_CONCATENATED:
        micro_batch.target_length, rows = 43, 3
        micro_batch.row_samples.extend([0, 1, 3, 5])
    if context > 1:
        wanted = [(0, 4), (1, 1), (2, 2), (3, 1), (0, 2)]
        micro_batch.span_first.extend(first for first, _ in wanted[:rows])
        micro_batch.span_ranks.extend(ranks for _, ranks in wanted[:rows])
    plan = plan_pb2.Plan(mesh=job_pb2.Mesh(pipeline=1, data=1, tensor=1, context=context))
    plan.replicas.add().micro_batches.append(micro_batch)
    plan.topology.replicas.add().stages.add().ranks.extend(range(context))
    return plan_pb2.PlannedBatch(plan=plan, batch=plan_pb2.Batch(samples=samples))


class Shares(unittest.TestCase):
    def test_are_those_of_the_example(self) -> None:
        for layout in (job_pb2.LAYOUT_PADDED, job_pb2.LAYOUT_PACKED, job_pb2.LAYOUT_CONCATENATED):
            for context in (1, 4):
                message = planned(layout, context)
                plan = plan_of(message.plan, message.batch.samples)
                said = json_format.MessageToDict(message, preserving_proto_field_name=True)
                for _, rank, number, expected in example.shares_of(said):
                    share = penstock.share_of(plan, 0, number, rank)
                    tokens = [
                        (None, None) if sample < 0 else (sample, token)
                        for sample, token in zip(share.samples.tolist(), share.tokens.tolist(), strict=True)
                    ]
                    self.assertEqual(tokens, expected["tokens"])
                    for name in ("position_ids", "loss_mask", "cu_seqlens", "key_lengths"):
                        self.assertEqual(getattr(share, name).tolist(), expected[name], name)

    def test_do_not_depend_on_parts(self) -> None:
        message = planned(job_pb2.LAYOUT_PACKED, 4)
        whole = penstock.share_of(plan_of(message.plan, message.batch.samples), 0, 0, 1)
        message.plan.replicas[0].micro_batches[0].part_rows.extend([0, 2, 5])
        message.plan.replicas[0].micro_batches[0].whole_backward = True
        message.plan.replicas[0].micro_batches[0].part_chunks.extend([0, 3, 0])
        plan = plan_of(message.plan, message.batch.samples)
        self.assertEqual(plan.replicas[0][0].part_rows, (0, 2, 5))
        self.assertTrue(plan.replicas[0][0].whole_backward)
        self.assertEqual(plan.replicas[0][0].part_chunks, (0, 3, 0))
        self.assertEqual(penstock.share_of(plan, 0, 0, 1).tokens.tolist(), whole.tokens.tolist())

    def test_name_a_context_rank_that_is_not_there(self) -> None:
        message = planned(job_pb2.LAYOUT_PACKED, 1)
        with self.assertRaisesRegex(IndexError, "^context: "):
            penstock.share_of(plan_of(message.plan, message.batch.samples), 0, 0, 1)


class Server:
    """Answers PlanBatch with one micro-batch of all samples, after the statuses of `failures`, the first `standby` times as a
    planner that does not lead."""

    def __init__(self, failures: list[tuple[grpc.StatusCode, str]], standby: int = 0) -> None:
        self.failures, self.requests, self.standby = failures, [], standby
        handler = grpc.unary_unary_rpc_method_handler(
            self.answer, planner_service_pb2.PlanBatchRequest.FromString, lambda response: response.SerializeToString()
        )
        self.server = grpc.server(ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("penstock.v1.PlannerService", {"PlanBatch": handler})]
        )
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def answer(self, request, context):
        self.requests.append(request)
        if self.failures:
            code, message = self.failures.pop(0)
            context.set_trailing_metadata([("penstock-retry-iteration", "7")])
            context.abort(code, message)
        if self.standby > 0:
            self.standby -= 1
            context.set_trailing_metadata([("penstock-standby", "b:7070"), ("penstock-standby-age-ms", "40")])
        response = planner_service_pb2.PlanBatchResponse()
        response.plan.iteration = request.batch.iteration
        response.plan.predicted.makespan_ns, response.plan.lower_bound_ns = 1_100_000_000, 1_000_000_000
        response.plan.loss_tokens = sum(sample.target_tokens for sample in request.batch.samples)
        micro_batch = response.plan.replicas.add().micro_batches.add(layout=job_pb2.LAYOUT_PACKED)
        for _ in range(1, request.job.mesh.data):
            response.plan.replicas.add()
        micro_batch.samples.extend(range(len(request.batch.samples)))
        return response

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop(None).wait()


class Clients(unittest.TestCase):
    def test_plan_sends_what_was_given(self) -> None:
        with Server([]) as server, penstock.Client(server.address) as client:
            plan = client.plan([5, (2, 3)], profile=PROFILE, pp=4, dp=2, cp=2, options={"token_cap": 64}, iteration=3)
        job = server.requests[0].job
        self.assertEqual((job.mesh.pipeline, job.mesh.data, job.mesh.tensor, job.mesh.context), (4, 2, 1, 2))
        self.assertEqual((job.planning.token_cap, server.requests[0].batch.iteration), (64, 3))
        self.assertGreater(job.model.hidden, 0)
        self.assertEqual((plan.lengths, plan.replicas[0][0].samples), (((0, 5), (2, 3)), (0, 1)))
        self.assertAlmostEqual(plan.gap, 0.1)

    def test_every_status_has_its_exception_with_the_field(self) -> None:
        """Those that mean that there is no planner are tried again: see below."""
        for code in set(grpc.StatusCode) - {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
            kind = errors._CLASSES.get(code, errors.PenstockError)
            with (
                Server([(code, "job.mesh.pipeline: is 0")]) as server,
                penstock.Client(server.address) as client,
                self.assertRaises(kind) as caught,
            ):
                client.plan([5], profile=PROFILE)
            self.assertIs(type(caught.exception), kind)
            self.assertEqual((caught.exception.field, caught.exception.retry_iteration), ("job.mesh.pipeline", 7))
            self.assertIs(caught.exception.code, code)

    def test_the_field_is_found_where_messages_have_it(self) -> None:
        for message, field in {
            "job.mesh: 4 x 3 are 12 ranks; use at most 8": "job.mesh",
            "batch.samples[3] is empty": "batch.samples[3]",
            "batch.samples[3], [5] and 12 more do not fit": "batch.samples[3]",
            "batches[1].samples[3] is empty": "batches[1].samples[3]",
            "instructions[7].id is 9": "instructions[7].id",
            "rank: 9 is none": "rank",
            "rank is 9, but job 'a' has 8 ranks": "rank",
            "iteration 3 was submitted with other content": "iteration",
            "iteration 3 is beyond the look-ahead window": "iteration",
            "job 'a' is finished": "job_id",
            "the queue is full: try again": "",
        }.items():
            self.assertEqual(errors.PenstockError(grpc.StatusCode.INVALID_ARGUMENT, message).field, field)

    def test_a_planner_that_stops_is_asked_again(self) -> None:
        gone = [(grpc.StatusCode.UNAVAILABLE, "stops"), (grpc.StatusCode.CANCELLED, "stops")]
        with Server(gone) as server, penstock.Client(server.address) as client:
            client.plan([5], profile=PROFILE)
        self.assertEqual(len(server.requests), 3)
        with (
            Server([(grpc.StatusCode.UNAVAILABLE, "stops")] * 50) as server,
            penstock.Client(server.address) as client,
            self.assertRaises(errors.Unavailable),
        ):
            # The first answer must come in it.
            client.plan([5], profile=PROFILE, timeout=1.0)

    def test_a_standbys_answer_is_none(self) -> None:
        with Server([], standby=2) as server, penstock.Client(server.address) as client:
            client.plan([5], profile=PROFILE)
        self.assertEqual(len(server.requests), 3)

        async def plan(address: str) -> None:
            async with penstock.AsyncClient(address) as client:
                await client.plan([5], profile=PROFILE)

        with Server([], standby=2) as server:
            asyncio.run(plan(server.address))
        self.assertEqual(len(server.requests), 3)
        with (
            Server([], standby=50) as server,
            penstock.Client(server.address) as client,
            self.assertRaisesRegex(errors.Unavailable, "'b:7070' leads"),
        ):
            client.plan([5], profile=PROFILE, timeout=1.0)

    def test_plans_ahead_come_in_order(self) -> None:
        with Server([]) as server, penstock.Client(server.address) as client:
            plans = list(client.plans([[n + 1] for n in range(20)], profile=PROFILE, ahead=3))
        self.assertEqual([plan.lengths[0][1] for plan in plans], list(range(1, 21)))
        self.assertEqual([plan.message.iteration for plan in plans], list(range(20)))

    def test_sampler_yields_the_datasets_indices(self) -> None:
        with Server([]) as server, penstock.Client(server.address) as client:
            sampler = penstock.PlannedBatchSampler(client, [1, 2, 3, 4], [[3, 1], [0, 2]], profile=PROFILE)
            self.assertEqual([list(sampler), list(sampler)], [[[3, 1], [0, 2]]] * 2)
        self.assertEqual(len(sampler.steps), 2)

    def test_steps_have_their_micro_batches_and_loss_tokens(self) -> None:
        """Replica 0 of two has what the server's answer gives it; replica 1 nothing."""
        for replica, expected in ((0, [[[3, 1]], [[0, 2]]]), (1, [[], []])):
            with Server([]) as server, penstock.Client(server.address) as client:
                sampler = penstock.PlannedBatchSampler(
                    client, [1, 2, 3, 4], [[3, 1], [0, 2]], profile=PROFILE, replica=replica, dp=2
                )
                steps = list(sampler.by_step(sampler))
            self.assertEqual([micro_batches for micro_batches, _ in steps], expected)
            self.assertEqual([loss_tokens for _, loss_tokens in steps], [6, 4])

    def test_asyncio_has_many_under_way(self) -> None:
        async def ask(address: str) -> list[int]:
            async with penstock.AsyncClient(address) as client:
                plans = await asyncio.gather(*(client.plan([n + 1], profile=PROFILE) for n in range(16)))
            return [plan.lengths[0][1] for plan in plans]

        with Server([(grpc.StatusCode.UNAVAILABLE, "starts")]) as server:
            self.assertEqual(asyncio.run(ask(server.address)), list(range(1, 17)))

    def test_plans_ahead_of_asyncio_come_in_order(self) -> None:
        async def ask(address: str, most: int) -> list[int]:
            async with penstock.AsyncClient(address) as client:
                plans = client.plans(([n + 1] for n in range(most)), profile=PROFILE, ahead=15)
                return [plan.lengths[0][1] async for plan in plans]

        with Server([]) as server:
            self.assertEqual(asyncio.run(ask(server.address, 20)), list(range(1, 21)))
        with Server([(grpc.StatusCode.INTERNAL, "broken")]) as server, self.assertRaises(errors.Internal):
            asyncio.run(ask(server.address, 20))

    def test_what_is_wrong_before_anything_is_sent_is_named(self) -> None:
        client = penstock.Client("127.0.0.1:1")
        for field, arguments in {
            "pp": {"pp": 0},
            "options": {"options": {"token_capp": 1}},
            "model": {"model": {"hiden": 1}},
        }.items():
            with self.assertRaisesRegex(ValueError, f"^{field}: "):
                client.plan([5], profile=PROFILE, **arguments)
        with self.assertRaisesRegex(ValueError, r"^lengths\[1\]: "):
            client.plan([5, -1], profile=PROFILE)
        with self.assertRaisesRegex(ValueError, "^addresses: "):
            penstock.Client("planner")
        with self.assertRaisesRegex(ValueError, "^authority: "):
            Security(token="token.txt")
        self.assertEqual(target_of("127.0.0.1:1,127.0.0.2:1"), "ipv4:127.0.0.1:1,127.0.0.2:1")

    def test_a_host_that_is_gone_is_noticed_as_by_the_cpp_client(self) -> None:
        limits = (ROOT / "common/grpc/limits.h").read_text(encoding="utf-8")
        options = dict(options_of("a:1", False, Security()))
        for name, option in (("kKeepaliveIntervalMs", "grpc.keepalive_time_ms"), ("kKeepaliveTimeoutMs", "grpc.keepalive_timeout_ms")):
            found = re.search(rf"{name} = ([0-9']+);", limits)
            assert found
            self.assertEqual(options[option], int(found.group(1).replace("'", "")))

    def test_local_names_a_program_that_is_not_there(self) -> None:
        with self.assertRaisesRegex(FileNotFoundError, "^binary: "):
            penstock.local("no-such-planner")


if __name__ == "__main__":
    unittest.main()
