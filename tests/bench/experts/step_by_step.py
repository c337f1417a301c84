#!/usr/bin/env python3
"""Plays the passes of plans step by step, on all ranks that divide the experts together, and compares what they take with what was planned.

A plan says what a pass takes a rank by itself, as if the others were as far as it is, and the group what it takes the slowest. Here ranks meet in
every exchange: rows leave when the last rank has got there and the exchange before has ended, and have arrived when the slowest rank's have. The
steps are those of the contract (proto/penstock/v1/execution.md, section 7, "Parts"), as the second reader (tests/reader) has them: attention, rows to
their experts, experts, rows back, and backward the gradients of rows and products for weights. Backward passes that are not in parts count as planned.

Plans are those of `penstock plan` for the models of exchange_orders.py. A table: milliseconds of the iteration as planned and step by step, their
difference, and that of the pass that differs most.

Usage: tests/bench/experts/step_by_step.py --data FOLDER [--only TEXT] [--routing zipf]     (FOLDER/lengths/*.csv)
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import exchange_orders
import simulated_orders

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/reader"))

import read_plan  # noqa: E402
from pass_costs import PassCosts  # noqa: E402
from reading import Reading  # noqa: E402
from turns import ends_ns  # noqa: E402
from world_costs import WorldCosts  # noqa: E402


class Player:
    """Of a plan of one stage without tensor ranks, whose experts all ranks of a replica divide."""

    def __init__(self, schema, planned_batch, profile_file):
        self._reading = Reading(schema, planned_batch)
        self._world_costs = WorldCosts(self._reading, profile_file.profile)
        self._pass_costs = PassCosts(self._reading, self._world_costs)

    def passes(self, replica):
        """(planned, step by step), nanoseconds, of the passes of a replica."""
        reading = self._reading
        first = next(rank for rank in range(len(reading.programs)) if reading.replica_of(rank) == replica)
        for item in reading.programs[first].instructions:
            if reading.op(item) in ("FORWARD", "BACKWARD"):
                yield self._pass_costs.of(first, item).expected_ns, self._played_ns(first, item)

    def _played_ns(self, first, item):
        reading, pipeline = self._reading, self._reading.pipeline_of(first)
        forward, stage = reading.op(item) == "FORWARD", pipeline.stages[item.stage]
        replica = reading.replica_of(first)
        shares = [reading.share(replica, item.micro_batch, context) for context in range(pipeline.contexts)]
        costs = [self._pass_costs.of(rank, item) for rank in pipeline.ranks_of_group(replica, stage)]
        if not forward and not shares[0].goes_in_parts(forward):
            return costs[0].expected_ns
        recompute = reading.plan.replicas[replica].micro_batches[item.micro_batch].recompute[stage.index]
        experts = self._world_costs.of_rank(first).exchanges.experts
        parts = [experts.part_passes(stage, share, forward, recompute) for share in shares]
        ends = ends_ns(parts)
        # Head and embeddings, once for all parts.
        others = [cost.own_ns - cost.exchange.expert_exposed_ns - sum(part.computed_ns for part in own) for cost, own in zip(costs, parts)]
        return max(end + other for end, other in zip(ends, others))

    def outcome(self):
        """Milliseconds of the iteration as planned and step by step, and of the pass that differs most what it takes more."""
        planned, played, worst = [], [], 0.0
        for replica in range(len(self._reading.plan.replicas)):
            passes = list(self.passes(replica))
            planned.append(sum(one for one, _ in passes))
            played.append(sum(other for _, other in passes))
            worst = max([worst, *(other / one - 1 for one, other in passes)], key=abs)
        makespan = self._reading.plan.predicted.makespan_ns
        return makespan / 1e6, (makespan - max(planned) + max(played)) / 1e6, worst


def outcome_of(penstock, schema, file, samples, replicas, contexts):
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        flags = simulated_orders.flags_of(Path(folder), "ours", file, samples, replicas, contexts)
        subprocess.run([penstock, "plan", *flags, "--out", plan], check=True, stdout=subprocess.DEVNULL)
        planned_batch = read_plan.load_message(schema, "PlannedBatch", plan)
        profile_file = read_plan.load_message(schema, "ProfileFile", flags[flags.index("--profile") + 1])
        return Player(schema, planned_batch, profile_file).outcome()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=ROOT / "build/release/bin", type=Path)
    exchange_orders.add_case_arguments(parser)
    options = parser.parse_args()
    schema = read_plan.load_schema()
    print("| model | planned ms | step by step ms | difference | of a pass, at most |\n|---|---|---|---|---|")
    for name, file, samples, replicas, contexts in exchange_orders.chosen_cases(options):
        planned, played, worst = outcome_of(options.bin / "penstock", schema, file, samples, replicas, contexts)
        print(f"| {name} | {planned:,.1f} | {played:,.1f} | {played / planned - 1:+.2%} | {worst:+.2%} |", flush=True)


if __name__ == "__main__":
    main()
