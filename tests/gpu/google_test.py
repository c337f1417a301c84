"""What a GoogleTest program said: its lines, which are there even when it crashed, and the figures that its tests recorded."""
import json
import re

from step import Outcome

BEGIN = re.compile(r"^\[ RUN      \] (\S+)")
END = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] ([^\s,]+).*\((\d+) ms\)")
OUTCOMES = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
SHOWN_LINES = 6
# Of testing::Test::RecordProperty.
FIGURE = re.compile(r"_(mb_per_second|latency_ns)$")


def reason_of(lines):
    """What a test printed, without the places in its sources."""
    said = [line.strip() for line in lines if line.strip() and not re.match(r"^\S+:\d+: (Skipped|Failure)$", line)]
    return " | ".join(said[:SHOWN_LINES])


def outcomes(output):
    """Of each test that began, in order."""
    tests, name, said = [], None, []
    for line in output.splitlines():
        begin, end = BEGIN.match(line), END.match(line)
        if begin:
            name, said = begin.group(1), []
        elif end and end.group(2) == name:
            outcome = OUTCOMES[end.group(1)]
            reason = "" if outcome == "passed" else reason_of(said)
            tests.append(Outcome(name, outcome, reason, int(end.group(3)) / 1000))
            name = None
        elif name:
            said.append(line)
    if name:
        tests.append(Outcome(name, "failed", " | ".join(filter(None, ["did not end", reason_of(said)]))))
    return tests


def is_whole(output):
    """Whether the program came to its end."""
    return re.search(r"^\[==========\] .* ran\.", output, re.MULTILINE) is not None


def figures(path):
    """By test: numbers that it recorded. Nothing where the program ended too early to write them."""
    if not path.exists():
        return {}
    found = {}
    for suite in json.loads(path.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            numbers = {key: int(value) for key, value in test.items() if FIGURE.search(key)}
            if numbers:
                found["{}.{}".format(suite["name"], test["name"])] = numbers
    return found
