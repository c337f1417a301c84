"""Requests that are allowed and once hurt: each row tries one, on a planner of its own, and says what it saw.

A row is a function of the programs' folder that returns (whether it held, what was seen).
"""

import contextlib
import itertools
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import grpc
from penstock.v1 import planner_service_pb2
from planner_process import PlannerProcess, call, job, outcome, register, stream, submission

GIB = 1 << 30
MIB = 1 << 20


def lengths(count, seed=1, most=2048):
    draw = random.Random(seed)
    return [min(most, 2 + int(draw.lognormvariate(4.5, 1.0))) for _ in range(count)]


def a_batch_beyond_memory(binary):
    """Row 1: 100,000 samples on 8 stages, planned and delivered to every rank."""
    with PlannerProcess(binary, "--memory=1GB") as planner, planner.channel() as channel:
        register(channel, job("large", pp=8))
        code, words, took = outcome(channel, "SubmitBatches", submission("large", 0, [lengths(100_000)]))
        begin = time.monotonic()
        programs = [call_first(channel, "large", 120, rank) or b"" for rank in range(8)] if code == "OK" else []
        planned = time.monotonic() - begin
        alive, peak = planner.lives(), planner.peak
        held = alive and all(programs) and (code == "OK" or "would do" in words) and peak < 1.25 * GIB
        delivered = f", all programs {planned:.1f} s later, the largest {max(map(len, programs)) / MIB:.2f} MiB" if programs else ""
        return held, f"{code} in {took:.1f} s{delivered}, peak {peak / GIB:.2f} GiB, {'lives' if alive else 'DEAD'}"


def streams_that_nobody_reads(binary, streams=1000):
    """Row 2: a thousand streams of a job, none of which is read."""
    with PlannerProcess(binary, "--memory=1GB") as planner, contextlib.ExitStack() as stack:
        channel = stack.enter_context(planner.channel())
        register(channel, job("job", pp=8, memory=24 * GIB))
        outcome(channel, "SubmitBatches", submission("job", 0, [lengths(4000, seed) for seed in range(4)]), 60)
        reader = call_first(channel, "job")
        if reader is None:
            return False, "no program in time"
        before = planner.resident()
        refused, held = 0, []
        for number in range(streams):
            if number % 100 == 0:
                attacker = stack.enter_context(planner.channel())
            request = planner_service_pb2.StreamProgramsRequest(job_id="job", rank=number % 8, from_iteration=number // 8 % 4)
            held.append(stream(attacker, request))
        time.sleep(3)
        taken = (planner.resident() - before) / MIB
        refused = sum(one.done() and one.code() == grpc.StatusCode.RESOURCE_EXHAUSTED for one in held)
        also_reads = call_first(channel, "job") is not None
        for one in held:
            one.cancel()
        return planner.lives() and taken < 200 and also_reads, (
            f"{streams} streams of {len(reader) / MIB:.2f} MiB a program take {taken:.0f} MiB, {refused} refused, another reader {'is served' if also_reads else 'WAITS'}")


def call_first(channel, name, seconds=60, rank=0):
    """The first program of a rank, as bytes; None: it did not come."""
    request = planner_service_pb2.StreamProgramsRequest(job_id=name, rank=rank)
    one = channel.unary_stream("/penstock.v1.PlannerService/StreamPrograms", request_serializer=type(request).SerializeToString)(
        request, timeout=seconds)
    try:
        return next(one)
    except grpc.RpcError:
        return None
    finally:
        one.cancel()


def an_abandoned_preparation(binary):
    """Row 3: large registrations whose clients have gone, and somebody small."""
    with PlannerProcess(binary, "--memory=4GB") as planner, planner.channel() as channel:
        for number in range(3):
            spec = job(f"large{number}", pp=16, dp=4)
            draw = lengths(4096, number, 8192)
            spec.planning.typical_batch_size = 4096
            for length in draw:
                spec.planning.typical_samples.add(target_tokens=length)
            register(channel, spec, timeout=0.5)
        tiny = register(channel, job("tiny"), timeout=60)
        nothing = job("nan")
        nothing.profile.layers[0].forward.fixed_ns = float("nan")
        request = planner_service_pb2.PlanBatchRequest(job=nothing)
        request.batch.samples.add(target_tokens=5)
        refused = outcome(channel, "PlanBatch", request, 60)
        return tiny[0] == "OK" and tiny[2] < 1 and refused[0] == "INVALID_ARGUMENT" and refused[2] < 1, (
            f"a tiny registration {tiny[0]} in {tiny[2]:.2f} s, a NaN refused in {refused[2]:.2f} s")


def all_places_taken(binary, registrations=1500):
    """Row 5: one client registers jobs that never start."""
    with PlannerProcess(binary) as planner, planner.channel() as channel:
        answers = [register(channel, job(f"job{number}", owner="greedy")) for number in range(registrations)]
        taken = sum(code == "OK" for code, _, _ in answers)
        code, words, _ = register(channel, job("honest", owner="honest"))
        return code == "OK", f"{taken} of {registrations} taken, the last: {answers[-1][1][:60]}; another owner's: {code} {words[:60]}"


def half_sent_http(binary, connections=300):
    """Row 12: half-sent requests to /metrics, and a scrape beside them."""
    with PlannerProcess(binary, "--metrics-listen=127.0.0.1:0") as planner, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", planner.ports["metrics_port"])
        for _ in range(connections):
            with contextlib.suppress(OSError):
                half = stack.enter_context(socket.create_connection(address, 5))
                half.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        begin = time.monotonic()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/metrics", timeout=60) as answer:
                answer.read()
        except (OSError, urllib.error.URLError) as error:
            return False, f"no scrape beside {connections} half-sent requests: {error}"
        took = time.monotonic() - begin
        return took < 5, f"a scrape beside {connections} half-sent requests takes {took:.2f} s"


def a_comment_of_60_megabytes(binary):
    """Row 12: what nobody reads is stored."""
    with PlannerProcess(binary) as planner, planner.channel() as channel:
        spec = job("job")
        spec.profile.comment = "x" * (60 * MIB)
        code, words, _ = register(channel, spec)
        size = sum(file.stat().st_size for file in planner.path.iterdir())
        return code == "INVALID_ARGUMENT" and "comment" in words and size < MIB, f"{code} {words[:60]}, store {size / MIB:.1f} MiB"


def a_stream_from_the_end_of_time(binary):
    """Row 12: from_iteration 2^64 - 1 waits for ever."""
    with PlannerProcess(binary) as planner, planner.channel() as channel:
        register(channel, job("job"))
        request = planner_service_pb2.StreamProgramsRequest(job_id="job", from_iteration=2**64 - 1)
        one = channel.unary_stream("/penstock.v1.PlannerService/StreamPrograms", request_serializer=type(request).SerializeToString)(
            request, timeout=5)
        with contextlib.suppress(grpc.RpcError):
            next(one)
        return one.code() == grpc.StatusCode.OUT_OF_RANGE, f"{one.code().name} {(one.details() or '')[:70]}"


def an_id_of_two_dots(binary):
    """Row 10: a job that is named after the parent folder."""
    with PlannerProcess(binary) as planner, planner.channel() as channel:
        code, words, _ = register(channel, job(".."))
        return code == "INVALID_ARGUMENT", f"{code} {words[:70]}"


def a_store_that_cannot_be_written(binary):
    """Row 8: the disk of the store is full, and nobody says so. Needs root, for a disk of its own."""
    with tempfile.TemporaryDirectory(prefix="penstock-disk-") as disk:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "penstock", disk], check=False).returncode != 0:
            return True, "not tried: no disk could be mounted"
        try:
            with PlannerProcess(binary, "--metrics-listen=127.0.0.1:0", store=f"sqlite:{disk}/planner.db") as planner:
                return full_disk(planner, pathlib.Path(disk))
        finally:
            subprocess.run(["umount", disk], check=False)


def full_disk(planner, disk):
    def metric():
        with urllib.request.urlopen(f"http://127.0.0.1:{planner.ports['metrics_port']}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return next((line.split()[1] for line in text.splitlines() if line.startswith("penstock_store_writable ")), "none")

    with planner.channel() as channel:
        register(channel, job("job"))
        ballast = disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        refused = outcome(channel, "SubmitBatches", submission("job", 0, [lengths(20_000)]))
        said, seen = status_of(channel), metric()
        ballast.unlink()
        end = time.monotonic() + 20
        while metric() == "0" and time.monotonic() < end:
            time.sleep(0.1)
        again = outcome(channel, "SubmitBatches", submission("job", 0, [lengths(20_000)]))
        return refused[0] == "UNAVAILABLE" and seen == "0" and "full" in said and again[0] == "OK", (
            f"{refused[0]}, penstock_store_writable {seen}, status says: {said[:70] or 'nothing'}; with room again {again[0]}")


def status_of(channel):
    return getattr(call(channel, "ListJobs", planner_service_pb2.ListJobsRequest()).jobs[0], "store_failure", "")


def deaths_in_planning(binary):
    """A planner that is killed while it plans a batch, again and again: the batch is not tried for ever."""
    with PlannerProcess(binary) as planner:
        with planner.channel() as channel:
            register(channel, job("slow", pp=16, dp=2, memory=24 * GIB))
            register(channel, job("other"))
            outcome(channel, "SubmitBatches", submission("slow", 0, [lengths(12_000)]))
        deaths = 0
        for deaths in itertools.count(1):
            time.sleep(0.6)
            planner.stop(signal.SIGKILL)
            planner.start()
            with planner.channel() as channel:
                jobs = call(channel, "ListJobs", planner_service_pb2.ListJobsRequest(), wait=True).jobs
                failure = next((one.failure for one in jobs if one.job_id == "slow"), "")
                if failure or deaths == 8:
                    fed = outcome(channel, "SubmitBatches", submission("other", 0, [lengths(8)]))[0]
                    return bool(failure) and fed == "OK", f"after {deaths} deaths: {failure[:80] or 'tried again'}; another job is fed: {fed}"
    return False, ""


ROWS = (a_batch_beyond_memory, streams_that_nobody_reads, an_abandoned_preparation, all_places_taken, a_store_that_cannot_be_written, an_id_of_two_dots, half_sent_http,
        a_comment_of_60_megabytes, a_stream_from_the_end_of_time, deaths_in_planning)
