"""What a planner's SQLite store says of a job: the losses and times of its iterations, bit for bit, and the secrets of its epochs.

The few fields that are needed are read from the protobuf messages of proto/penstock/store/v1/job_log.proto by their numbers.
"""

import contextlib
import sqlite3
import struct

WORKER_REGISTERED, ITERATION_REPORTED = 7, 11
EPOCH_SECRET = 6
RANK, ITERATION, DURATION_NS, LOSS = 1, 2, 3, 6


def fields(message):
    """By number: integers, bytes, or doubles; of a repeated field the last."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            found[number] = varint()
        elif kind == 1:
            (found[number],) = struct.unpack_from("<d", message, at)
            at += 8
        elif kind == 2:
            length = varint()
            found[number] = message[at:at + length]
            at += length
        else:
            raise ValueError(f"wire type {kind}")
    return found


def events_of(store, job_id):
    """Of a store that no planner has open."""
    with contextlib.closing(sqlite3.connect(store)) as database:
        rows = database.execute("SELECT e.bytes FROM events e JOIN jobs j ON e.job = j.job WHERE j.job_id = ? ORDER BY e.sequence", (job_id,))
        return [fields(row[0]) for row in rows]


def secrets_of(store, job_id):
    registered = (fields(event[WORKER_REGISTERED]) for event in events_of(store, job_id) if WORKER_REGISTERED in event)
    return {one[EPOCH_SECRET] for one in registered if EPOCH_SECRET in one}


def iterations_of(store, job_id):
    """By iteration: the loss (only ranks of the last stage have one), and the seconds of the slowest rank."""
    losses, seconds = {}, {}
    for event in events_of(store, job_id):
        if ITERATION_REPORTED not in event:
            continue
        report = fields(event[ITERATION_REPORTED])
        iteration = report.get(ITERATION, 0)
        losses[iteration] = losses.get(iteration, 0.0) + report.get(LOSS, 0.0)
        seconds[iteration] = max(seconds.get(iteration, 0.0), report.get(DURATION_NS, 0) / 1e9)
    return losses, seconds
