"""What the tests of adapters plan with: the real program, PENSTOCK_BINARY in the environment."""

import os
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "planner/client/python"))

from penstock.adapters.command import CommandPlanner

PROFILE = str(ROOT / "examples/gpt_7b.json")


def real_planner() -> CommandPlanner:
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
