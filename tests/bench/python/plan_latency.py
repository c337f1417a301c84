#!/usr/bin/env python3
"""What a plan takes from Python beside the C++ client; prints a JSON object for each run, then a table in Markdown.

    PYTHONPATH=... plan_latency.py BIN [--lengths FILE.csv] [--samples 256,2048] [--rounds 5] [--calls 200]

BIN: the folder of penstock-planner and service_bench. PYTHONPATH: the package and what it needs (pip install, or as in tests/python).

One planner and one profile; both clients send the same batches, one call after the other, in rounds that alternate. `plan`: client.plan
from lengths to a Plan, with the reading of the profile done before. `ahead`: 16 batches in flight with asyncio, of the same batches;
seconds of all of them over their number. p50 and p99 in ms; figures of the table are medians of the rounds.
"""

import argparse
import asyncio
import csv
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

# A planner is started while a client is there: gRPC must not close its connections for that.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import penstock
from penstock.request import job_of, profile_of, request_of

ROOT = Path(__file__).resolve().parents[3]
BATCHES = 8
IN_FLIGHT = 16
MESH = {"pp": 4, "dp": 2}


def batches_of(path, samples, longest=8192):
    with open(path, newline="") as file:
        rows = csv.DictReader(file)
        lengths = [sum(int(v) for k, v in row.items() if k in ("tokens", "input_tokens", "target_tokens")) for row in rows]
    lengths = [length for length in lengths if 0 < length <= longest]
    # Again from the beginning where the file is short.
    return [[lengths[(first + i) % len(lengths)] for i in range(samples)] for first in range(0, BATCHES * samples, samples)]


def quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1))]


def row(way, samples, seconds, elapsed):
    values = [second * 1000 for second in seconds]
    return {"way": way, "samples": samples, "count": len(values), "p50_ms": quantile(values, 0.5), "p99_ms": quantile(values, 0.99),
            "a_second": len(values) / elapsed}


def from_python(client, batches, profile, calls):
    client.plan(batches[0], profile=profile, **MESH)
    seconds, begin = [], time.perf_counter()
    for call in range(calls):
        start = time.perf_counter()
        client.plan(batches[call % BATCHES], profile=profile, **MESH)
        seconds.append(time.perf_counter() - start)
    return row("python", len(batches[0]), seconds, time.perf_counter() - begin)


def from_cpp(binary, address, files, samples, calls):
    command = [binary, "plans", "--planner", address, "--calls", str(calls), "--requests", *files]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"way": "c++", "samples": samples, **{key: said[key] for key in ("count", "p50_ms", "p99_ms", "a_second")}}


def ahead(address, batches, profile, calls):
    async def ask():
        async with penstock.AsyncClient(address) as client:
            await client.plan(batches[0], profile=profile, **MESH)
            seconds, begin = [], time.perf_counter()
            last = begin
            plans = client.plans((batches[call % BATCHES] for call in range(calls)), profile=profile, ahead=IN_FLIGHT - 1, **MESH)
            async for _ in plans:
                now = time.perf_counter()
                seconds.append(now - last)
                last = now
            return row("ahead", len(batches[0]), seconds, last - begin)

    return asyncio.run(ask())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path)
    parser.add_argument("--lengths", type=Path, default=ROOT / "examples/lengths.csv")
    parser.add_argument("--samples", default="256,2048")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    profile = profile_of(ROOT / "examples/gpt_7b.json")
    rows = []
    with penstock.local(str(arguments.bin / "penstock-planner")) as planner, tempfile.TemporaryDirectory() as folder:
        for samples in map(int, arguments.samples.split(",")):
            batches = batches_of(arguments.lengths, samples)
            files = [f"{folder}/{samples}-{number}" for number in range(BATCHES)]
            for file, batch in zip(files, batches, strict=True):
                job = job_of(profile=profile, model=None, tp=1, cp=1, ep=1, options=None, **MESH)
                Path(file).write_bytes(request_of(batch, job, iteration=0).SerializeToString())
            calls = max(BATCHES, arguments.calls * 256 // samples)
            for turn in range(arguments.rounds):
                ways = [
                    lambda: from_python(planner.client, batches, profile, calls),
                    lambda: from_cpp(arguments.bin / "service_bench", planner.address, files, samples, calls),
                    lambda: ahead(planner.address, batches, profile, calls),
                ]
                for number in range(len(ways)):
                    measured = {"round": turn, "load": os.getloadavg()[0], **ways[(number + turn) % len(ways)]()}
                    rows.append(measured)
                    print(json.dumps(measured), flush=True)
    print("\n| samples | way | calls a round | p50 ms | p99 ms | plans/s |\n|---|---|---|---|---|---|")
    for samples in map(int, arguments.samples.split(",")):
        for way in ("python", "c++", "ahead"):
            own = [one for one in rows if one["way"] == way and one["samples"] == samples]
            p50, p99, rate = (statistics.median(one[key] for one in own) for key in ("p50_ms", "p99_ms", "a_second"))
            print(f"| {samples:,} | {way} | {own[0]['count']} | {p50:.1f} | {p99:.1f} | {rate:.1f} |")


if __name__ == "__main__":
    main()
