"""What the tests of adapters plan with: the real program, PENSTOCK_BINARY in the environment, or, where PENSTOCK_PLANNER names the
planner's, one of it that is asked over a connection."""

import atexit
import functools
import importlib.util
import os
import random
import sys
from pathlib import Path

# A planner is started while a client is there: gRPC must not close its connections for that.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec("penstock") is None:
    sys.path.insert(0, str(ROOT / "planner/client/python"))

from penstock.adapters.command import CommandPlanner
from penstock.adapters.groups import GroupPlanner

PROFILE = str(ROOT / "examples/gpt_7b.json")


@functools.cache
def connected_planner() -> GroupPlanner:
    """Of a planner that ends with this process."""
    import penstock
    from penstock.adapters.connection import ClientPlanner

    planner = penstock.local(os.environ["PENSTOCK_PLANNER"])
    atexit.register(planner.close)
    options = {"memory_limit_bytes": 200_000_000_000, "effort": "EFFORT_FAST"}
    return ClientPlanner(planner.client, profile=PROFILE, options=options)


def real_planner() -> GroupPlanner:
    if os.environ.get("PENSTOCK_PLANNER"):
        return connected_planner()
    return CommandPlanner(os.environ["PENSTOCK_BINARY"], PROFILE, ("--memory-mb", "200000", "--effort", "fast"))


def lengths_like_tasks(count: int, seed: int = 1, longest: int = 8192) -> list[int]:
    """Many short, few long: log-normal."""
    random_numbers = random.Random(seed)
    return [min(longest, 2 + int(random_numbers.lognormvariate(5, 1.2))) for _ in range(count)]


class RanksOfAGroup:
    """Stands for a process group where a framework only asks how many ranks it has."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def size(self) -> int:
        return self.ranks
