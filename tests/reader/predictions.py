"""Makespan, busy time and why ranks wait (execution.md, section 9)."""

from dataclasses import dataclass

from reading import PASSES

BACKWARD_PASSES = PASSES[1:]


@dataclass
class RankWaits:
    busy_ns: int = 0
    fill_ns: int = 0
    drain_ns: int = 0
    imbalance_ns: int = 0
    memory_ns: int = 0
    transfer_ns: int = 0
    dependency_ns: int = 0
    group_ns: int = 0


class Predictor:
    """Recomputes the prediction of a plan from the times of its instructions.

    `own` is [rank][id] of what instructions would take on their ranks alone; `senders` maps (rank, id) of a RECV to (rank, id) of its SEND.
    """

    def __init__(self, reading, times, own, senders):
        self._programs = reading.programs
        self._times = times
        self._own = own
        self._op = reading.op
        self._replica_of = reading.replica_of
        self._senders = senders
        self._last_pass_of_replica = [0] * reading.world.replicas
        for rank in range(len(self._programs)):
            replica = self._replica_of(rank)
            for instruction in self._passes(rank):
                end = times.end[rank][instruction.id]
                self._last_pass_of_replica[replica] = max(self._last_pass_of_replica[replica], end)

    def makespan_ns(self):
        return max((end for ends in self._times.end for end in ends), default=0)

    def last_backward_ns(self):
        return max(self._last_pass_of_replica)

    def waits(self, rank):
        """The eight parts of the makespan of a rank."""
        times, program = self._times, self._programs[rank]
        result = RankWaits()
        for instruction in program.instructions:
            if self._op(instruction) in PASSES + ("OPTIMIZER_STEP",):
                taken = times.end[rank][instruction.id] - times.start[rank][instruction.id]
                result.busy_ns += self._own[rank][instruction.id]
                result.group_ns += taken - self._own[rank][instruction.id]
        passes = self._passes(rank)
        last_of_replica = self._last_pass_of_replica[self._replica_of(rank)]
        result.fill_ns = times.start[rank][passes[0].id] if passes else 0
        result.drain_ns = last_of_replica - (times.end[rank][passes[-1].id] if passes else 0)
        result.imbalance_ns = self.last_backward_ns() - last_of_replica
        for before, after in zip(passes, passes[1:]):
            self._add_wait(result, rank, before, after)
        parts = vars(result).values()
        result.transfer_ns += self.makespan_ns() - sum(parts)
        return result

    def _passes(self, rank):
        return [item for item in self._programs[rank].instructions if self._op(item) in PASSES]

    def _add_wait(self, result, rank, before, after):
        """Divides the wait between two passes that follow one another."""
        free, start = self._times.end[rank][before.id], self._times.start[rank][after.id]
        full = self._waits_for_memory_from(rank, free, start, after)
        result.memory_ns += start - full
        in_transfer = 0
        waits = [
            item
            for item in self._programs[rank].instructions[before.id + 1 : after.id]
            if self._op(item) == "WAIT" and item.part in (0, 1)
        ]
        if waits:
            receive = (rank, waits[-1].transfer_id)
            sender, send_id = self._senders[receive]
            arrival = self._times.end[rank][receive[1]]
            deps = self._programs[sender].instructions[send_id].deps
            ready = max((self._times.end[sender][dep] for dep in deps), default=0)
            in_transfer = max(0, min(full, arrival) - max(free, ready))
        result.transfer_ns += in_transfer
        result.dependency_ns += full - free - in_transfer

    def _waits_for_memory_from(self, rank, free, start, next_pass):
        """From when on the wait before a pass is a wait for memory; `start` if it is not."""
        program = self._programs[rank]
        forward = next((item for item in program.instructions[next_pass.id :] if self._op(item) == "FORWARD"), None)
        if forward is None:
            return start
        input_time, need = 0, forward.memory_acquired_bytes
        for dep in forward.deps:
            instruction = program.instructions[dep]
            if self._op(instruction) == "LOAD":
                need += instruction.memory_acquired_bytes
                continue
            ended = instruction.transfer_id if self._op(instruction) == "WAIT" else dep
            input_time = max(input_time, self._times.end[rank][ended])
        for item in program.instructions:
            of_forward = (item.stage, item.micro_batch) == (forward.stage, forward.micro_batch)
            if of_forward and self._op(item) in BACKWARD_PASSES:
                need += item.memory_acquired_bytes
        in_use = program.static_memory_bytes
        for item in program.instructions[: next_pass.id]:
            in_use += item.memory_acquired_bytes - item.memory_released_bytes
        if need <= program.memory_limit_bytes - in_use:
            return start
        return min(max(input_time, free), start)
