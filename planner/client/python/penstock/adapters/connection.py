"""Groups from a planner over a connection that stays: what plans every iteration asks this way.

    client = penstock.Client("planner.example.com:7070")
    planner = ClientPlanner(client, profile="examples/gpt_7b.json", options={"shard_optimizer_state": True})
    groups = planner(lengths, replicas=4)

Needs grpcio, protobuf and the messages of penstock.v1, as `pip install penstock` brings them.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.adapters.groups import Groups, checked, groups_of
from penstock.client import Client
from penstock.plan import Plan
from penstock.request import Length, Model, Options, Profile, options_of_plan, profile_of
from penstock.v1 import job_pb2


class ClientPlanner:
    """A GroupPlanner. `profile`, `model`, `options`, and the degrees within a replica, as in Client.plan; micro-batches are packed
    rows unless options say otherwise.

    `last_plan` is the plan that was made last.
    """

    def __init__(
        self,
        client: Client,
        *,
        profile: Profile,
        model: Model | None = None,
        pp: int = 1,
        tp: int = 1,
        cp: int = 1,
        options: Options | None = None,
    ) -> None:
        self._client = client
        # Read and parsed once, not for every batch.
        self._profile = profile_of(profile)
        self._options = options_of_plan(options)
        if not self._options.layout:
            self._options.layout = job_pb2.LAYOUT_CHOICE_PACKED
        self._model = model
        self._degrees = {"pp": pp, "tp": tp, "cp": cp}
        self.last_plan: Plan | None = None

    def __call__(self, lengths: Sequence[Length], replicas: int) -> Groups:
        """Blocks. Raises what Client.plan raises."""
        self.last_plan = self._client.plan(
            lengths, profile=self._profile, model=self._model, dp=replicas, options=self._options, **self._degrees
        )
        return checked(groups_of(self.last_plan.message), len(lengths), replicas)
