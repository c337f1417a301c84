"""Groups from the installed program: `penstock plan`, for one batch at a time.

    planner = CommandPlanner("penstock", profile="examples/gpt_7b.json", options=("--shard-optimizer-state",))
    groups = planner(lengths, replicas=4)

With `--planner HOST:PORT` among the options a planner plans, else the program itself does. Starting a program takes
milliseconds; what plans every iteration should keep a connection to a planner instead (ClientPlanner of connection.py).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.adapters.groups import Groups, checked


class PlanningError(RuntimeError):
    """What `penstock plan` said."""


@dataclass
class CommandPlanner:
    """A GroupPlanner. `binary`: the program; `profile`: a cost profile; `options`: of `penstock plan`, beside --dp.

    `last_plan` is the plan (JSON's form of penstock.v1.Plan) that was made last.
    """

    binary: str
    profile: str
    options: Sequence[str] = ()
    last_plan: dict[str, Any] | None = None

    def __call__(self, lengths: Sequence[int], replicas: int) -> Groups:
        """Blocks. Raises PlanningError with the program's message."""
        with tempfile.TemporaryDirectory() as folder:
            table, answer = Path(folder, "lengths.csv"), Path(folder, "plan.json")
            table.write_text("tokens\n" + "".join(f"{length}\n" for length in lengths))
            command = [self.binary, "plan", "--profile", self.profile, "--lengths", str(table)]
            command += ["--rows", f"0:{len(lengths)}"]
            command += ["--dp", str(replicas), "--policy", "dynamic", "--layout", "packed", "--out", str(answer)]
            done = subprocess.run([*command, *self.options], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise PlanningError(done.stderr.strip())
            planned: dict[str, Any] = json.loads(answer.read_text())
        self.last_plan = planned["plan"]
        groups = [
            [[int(place) for place in micro_batch["samples"]] for micro_batch in replica.get("micro_batches", [])]
            for replica in planned["plan"]["replicas"]
        ]
        return checked(groups, len(lengths), replicas)
