"""A batch's lengths, what each policy would take, and the best plan as a picture. Cell by cell in an editor that knows "# %%", or

    plan_of_a_batch.py [--planner 127.0.0.1:7070] [--picture plan.png]

Without --planner one is started; the picture needs matplotlib.
"""

# %% What is planned: 256 samples of examples/lengths.csv, for a model of 7B parameters on 4 stages x 2 replicas
import argparse
import csv
from pathlib import Path

import penstock
from penstock import errors
from penstock.v1 import plan_pb2

HERE = Path(__file__).resolve().parent
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--planner")
parser.add_argument("--picture", type=Path)
parser.add_argument("--samples", type=int, default=256)
arguments, _ = parser.parse_known_args()
local = None if arguments.planner else penstock.local()
client = local.client if local else penstock.Client(arguments.planner)
job = {"profile": HERE.parent / "gpt_7b.json", "pp": 4, "dp": 2}
with open(HERE.parent / "lengths.csv", newline="") as file:
    rows = [row for row, _ in zip(csv.DictReader(file), range(arguments.samples))]
LONGEST = 8192
targets = [int(row["target_tokens"]) for row in rows]
lengths = [(min(int(row["input_tokens"]), LONGEST - target), target) for row, target in zip(rows, targets)]

# %% Its lengths: each row of the histogram has twice as long samples as the one before
print(f"{len(lengths)} samples, {sum(map(sum, lengths)):,} tokens, the longest {max(map(sum, lengths)):,}")
edge = 64
while edge < 2 * max(map(sum, lengths)):
    count = sum(edge // 2 < sum(length) <= edge or (edge == 64 and sum(length) <= 32) for length in lengths)
    print(f"{edge // 2:>6,} to {edge:>6,} tokens  {count:>4}  {'#' * (60 * count // len(lengths))}")
    edge *= 2

# %% What each policy would take
plans: dict[str, penstock.Plan] = {}
print("\npolicy         seconds  micro-batches  real tokens of computed  above the bound")
for policy in ("PADDING", "CONCATENATED", "TOKEN_BUDGET", "PACKED", "DYNAMIC"):
    try:
        plan = client.plan(lengths, options={"policy": f"POLICY_{policy}"}, **job)
    except errors.PenstockError as error:
        # What does not fit says so, and what would.
        print(f"{policy:<13}  {error.message}")
        continue
    plans[policy] = plan
    micro_batches = [micro_batch for replica in plan.replicas for micro_batch in replica]
    real = sum(one.real_tokens for one in micro_batches) / sum(one.computed_tokens for one in micro_batches)
    print(f"{policy:<13} {plan.predicted_seconds:>8.3f}  {len(micro_batches):>13}  {real:>23.0%}  {plan.gap:>15.1%}")
best = min(plans.values(), key=lambda plan: plan.predicted_seconds)
print(f"\nschedule {best.schedule}, layers of the stages {list(best.message.layers_per_stage)}")

# %% The plan as a picture: of each rank when it runs which micro-batch; dark: forward, light: backward
if arguments.picture:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    SHADES = {
        plan_pb2.OP_FORWARD: 1.0,
        plan_pb2.OP_BACKWARD: 0.55,
        plan_pb2.OP_BACKWARD_INPUT: 0.55,
        plan_pb2.OP_BACKWARD_WEIGHT: 0.3,
    }
    figure, axes = pyplot.subplots(figsize=(12, 4))
    colours = pyplot.get_cmap("tab20")
    for program in best.message.programs:
        for one in program.instructions:
            if one.op in SHADES:
                axes.barh(
                    program.rank,
                    one.expected_duration_ns * 1e-9,
                    left=one.expected_start_ns * 1e-9,
                    color=colours(one.micro_batch % 20),
                    alpha=SHADES[one.op],
                    edgecolor="white",
                    linewidth=0.3,
                )
    axes.set(xlabel="seconds", ylabel="rank", yticks=[program.rank for program in best.message.programs])
    axes.invert_yaxis()
    figure.tight_layout()
    figure.savefig(arguments.picture, dpi=120)
    print(f"the plan is drawn in {arguments.picture}")

# %% The end of a planner of one's own
if local:
    local.close()
