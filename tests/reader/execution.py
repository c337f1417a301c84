"""Start times by the model of execution (execution.md, sections 2 to 6), and whether programs issued one by one reach their ends."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Meetings:
    """Which instructions of several ranks start together: the two ends of a transfer, the members of a collective.

    Instructions are named (rank, id). `of` maps each to the tuple of all that it starts with, itself among them.
    """

    of: dict

    def members(self, rank, instruction):
        return self.of.get((rank, instruction.id), ((rank, instruction.id),))


@dataclass(frozen=True)
class Times:
    """Start and end of every instruction, nanoseconds; [rank][id]."""

    start: list
    end: list


def times(programs, meetings, durations):
    """When instructions start and end, each as early as streams, deps and meetings allow; None if some never start.

    `durations` is [rank][id].
    """
    previous = [_previous_on_stream(program) for program in programs]
    start = [[None] * len(program.instructions) for program in programs]
    end = [[None] * len(program.instructions) for program in programs]

    def ready(rank, instruction_id):
        """When this instruction could start by its own rank; None: not known yet."""
        latest = 0
        before = list(programs[rank].instructions[instruction_id].deps)
        if previous[rank][instruction_id] is not None:
            before.append(previous[rank][instruction_id])
        for dep in before:
            if end[rank][dep] is None:
                return None
            latest = max(latest, end[rank][dep])
        return latest

    # Each rank goes through its program again and again, as long as some instruction could start.
    waiting = [[instruction for instruction in program.instructions] for program in programs]
    progress = True
    while progress and any(waiting):
        progress = False
        for rank, instructions in enumerate(waiting):
            left = []
            for instruction in instructions:
                if start[rank][instruction.id] is not None:  # It has started with one that it meets.
                    continue
                members = meetings.members(rank, instruction)
                starts = [ready(*member) for member in members]
                if None in starts:
                    left.append(instruction)
                    continue
                for member_rank, member_id in members:
                    start[member_rank][member_id] = max(starts)
                    end[member_rank][member_id] = max(starts) + durations[member_rank][member_id]
                progress = True
            waiting[rank] = left
    return None if any(waiting) else Times(start, end)


def _previous_on_stream(program):
    previous, last = [], {}
    for instruction in program.instructions:
        previous.append(last.get(instruction.stream))
        last[instruction.stream] = instruction.id
    return previous


def blocked_ranks(programs, meetings):
    """Issues every program one instruction at a time; a meeting ends only when all its ranks are at it.

    Returns {rank: id of the instruction that it never gets past}, empty if all reach their ends.
    """
    at = [0] * len(programs)
    progress = True
    while progress:
        progress = False
        for rank, program in enumerate(programs):
            while at[rank] < len(program.instructions):
                members = meetings.members(rank, program.instructions[at[rank]])
                if any(at[member_rank] != member_id for member_rank, member_id in members):
                    break
                for member_rank, _ in members:
                    at[member_rank] += 1
                progress = True
    return {rank: at[rank] for rank, program in enumerate(programs) if at[rank] < len(program.instructions)}
