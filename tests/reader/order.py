"""Which instructions of a rank are certain to end before others start: by streams and deps alone (execution.md, section 2)."""


class _Before:
    """For each instruction and stream the last instruction of that stream that is certain to end before it starts."""

    def __init__(self, program):
        self._last_before = []
        last_of_stream = {}
        for instruction in program.instructions:
            reached = {}
            previous = last_of_stream.get(instruction.stream)
            for dep in instruction.deps + ([] if previous is None else [previous]):
                _raise_to(reached, program.instructions[dep].stream, dep)
                for stream, last in self._last_before[dep].items():
                    _raise_to(reached, stream, last)
            self._last_before.append(reached)
            last_of_stream[instruction.stream] = instruction.id

    def ends_before(self, earlier, later):
        """Whether there is a path from `earlier` to `later` through deps and the order of streams."""
        return self._last_before[later.id].get(earlier.stream, -1) >= earlier.id


def _raise_to(reached, stream, instruction_id):
    reached[stream] = max(reached.get(stream, -1), instruction_id)


def certainly_before(program):
    """The order of a program whose deps name earlier instructions."""
    return _Before(program)
