#!/usr/bin/env python3
"""Megabytes of text that become tokens in a second, and the memory it takes: of `penstock dataset import`, and of the library beside it.

Usage: speed.py FOLDER LINES.jsonl THREADS     (what `run` starts for the library: one JSON object with its seconds)
"""
import collections
import json
import os
import pathlib
import resource
import subprocess
import sys
import threading
import time

BATCH = 1000
# Seconds on the clock and of all cores, and the most bytes.
Cost = collections.namedtuple("Cost", ["seconds", "core_seconds", "memory"])


def write_lines(texts, megabytes, path):
    """Documents over and over, until there are so many bytes of text; how many there are."""
    encoded = [(len(text.encode()), json.dumps({"text": text}, ensure_ascii=False) + "\n") for text in texts]
    total = 0
    with path.open("w") as file:
        while total < megabytes * 1e6:
            for size, line in encoded:
                file.write(line)
                total += size
                if total >= megabytes * 1e6:
                    break
    return total


def memory_of(root):
    """Resident bytes of a process and all below it."""
    parents, resident = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines())
        except OSError:
            continue
        parents[int(entry.name)] = int(status["PPid"])
        resident[int(entry.name)] = int(status.get("VmRSS", "0 kB").split()[0]) * 1024
    tree, new = set(), {root}
    while new:
        tree |= new
        new = {pid for pid, parent in parents.items() if parent in new}
    return sum(resident.get(pid, 0) for pid in tree)


def core_seconds():
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(command, environment=None):
    """Its output and its cost, memory as seen ten times a second."""
    begin, before = time.monotonic(), core_seconds()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    most, ended = [0], threading.Event()

    def watch():
        while not ended.wait(0.1):
            most[0] = max(most[0], memory_of(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output = process.communicate()[0]
    ended.set()
    watcher.join()
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} has ended with {process.returncode}")
    return output, Cost(time.monotonic() - begin, core_seconds() - before, most[0])


def of_penstock(binaries, folder, lines, threads, out):
    command = [f"{binaries}/penstock", "dataset", "import", "--tokenizer", folder, "--threads", str(threads), "--out", out, lines]
    return measured([str(word) for word in command])[1]


def of_library(folder, lines, threads):
    """Without its start and the reading of lines, both of which Penstock's seconds have in them."""
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    output, cost = measured([sys.executable, __file__, str(folder), str(lines), str(threads)], environment)
    return Cost(*json.loads(output), cost.memory)


def encode_all(folder, lines, threads):
    """Seconds on the clock and of all cores inside of the library."""
    import folders
    reference = folders.Reference(pathlib.Path(folder))
    seconds = used = 0
    with open(lines) as file:
        while batch := [json.loads(line)["text"] for _, line in zip(range(BATCH), file)]:
            begin, before = time.monotonic(), time.process_time()
            if reference.json:
                reference.library.encode_batch(batch)
            else:
                reference.library.encode(batch, num_threads=int(threads))
            seconds += time.monotonic() - begin
            used += time.process_time() - before
    return seconds, used


if __name__ == "__main__":
    print(json.dumps(encode_all(*sys.argv[1:])))
