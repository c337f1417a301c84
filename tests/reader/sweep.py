"""Makes many plans with options drawn at random and reads each: by hand, for hours if need be. The test is plan_reader_test.py.

Usage: python3 tests/reader/sweep.py --penstock build/release/bin/penstock --plans 200 --seed 1
       ... --profile examples/gpt_7b.json --lengths examples/lengths.csv --rows 0:256 --max-length 8192 --pp 4 --dp 2
"""

import argparse
import collections
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from costs import NoCost
from inputs import PROFILES, lengths_csv
from plan_reader import read_plan
from read_plan import load_message, load_schema
from schema import Unreadable

POLICIES = ("dynamic", "dynamic", "padding", "packed", "concatenated", "token_budget")
SCHEDULES = ("1f1b", "ready-first", "split-backward", "interleaved", "auto")
RECOMPUTES = ("none", "selective", "full", "auto")


# Tensor and context ranks.
DEGREES = ((1, 1), (1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 2))


def expert_degrees(tp, cp, experts):
    """Over how many ranks of a stage group experts may be divided."""
    return [tp * 2**power for power in range(8) if tp * cp % (tp * 2**power) == 0 and experts % (tp * 2**power) == 0]


def possible_meshes(ranks, groups, is_t5):
    """[(pp, dp, tp, cp)] of so many ranks."""
    degrees = sorted(set(DEGREES)) if groups else [(1, 1)]
    return [
        (pp, ranks // (pp * tp * cp), tp, cp)
        for pp in (1, 2, 3, 4)
        for tp, cp in degrees
        if ranks % (pp * tp * cp) == 0 and not (is_t5 and cp > 1)
    ]


def draw_side_by_side(generator, ranks, groups, is_t5):
    """Meshes that have so many ranks together: two, or now and then three."""
    count = min(ranks, generator.choice((2, 2, 3)))
    cuts = sorted(generator.sample(range(1, ranks), count - 1))
    parts = [after - before for before, after in zip([0] + cuts, cuts + [ranks])]
    return [generator.choice(possible_meshes(part, groups, is_t5)) for part in parts]


def draw_strategies(generator, groups, is_t5, experts):
    """Up to three strategies of as many ranks each: a mesh, or several side by side."""
    ranks = generator.choice((2, 4, 4, 6, 7, 8, 12))
    meshes = possible_meshes(ranks, groups, is_t5)
    strategies = [[mesh] for mesh in generator.sample(meshes, min(generator.choice((1, 3)), len(meshes)))]
    for index in range(len(strategies)):
        if generator.random() < 0.5:
            strategies[index] = draw_side_by_side(generator, ranks, groups, is_t5)

    def text(pp, dp, tp, cp):
        divided = f" x ep {generator.choice(expert_degrees(tp, cp, experts))}" if experts and tp * cp > 1 else ""
        return f"pp {pp} x dp {dp} x tp {tp} x cp {cp}{divided}"

    return "--strategies=" + "; ".join(" + ".join(text(*mesh) for mesh in strategy) for strategy in strategies)


def draw_choices(generator):
    """Flags that leave open who is where."""
    flags = [f"--effort={generator.choice(('fast', 'fast', 'normal'))}"]
    flags += [f"--policy={generator.choice(POLICIES)}", f"--schedule={generator.choice(SCHEDULES)}"]
    flags += [f"--recompute={generator.choice(RECOMPUTES)}", f"--layout={generator.choice(('auto', 'packed', 'padded'))}"]
    if generator.random() < 0.3:
        flags.append(f"--micro-batch-size={generator.choice((1, 2, 3))}")
    return flags


def draw_options(generator, layers, pipeline=None, replicas=None, groups=False, is_t5=False, experts=0):
    """Flags of `penstock plan` but for its files."""
    if pipeline is None and replicas is None and generator.random() < 0.2:
        return [draw_strategies(generator, groups, is_t5, experts), *draw_choices(generator)]
    pp = pipeline or generator.choice((1, 2, 2, 3, 4))
    dp = replicas or generator.choice((1, 2, 3))
    tp, cp = generator.choice(DEGREES) if groups else (1, 1)
    flags = [f"--tp={tp}", f"--cp={1 if is_t5 else cp}"] if tp * cp > 1 else []
    if experts and tp * cp > 1:
        flags.append(f"--ep={generator.choice(expert_degrees(tp, cp, experts))}")
    flags += [f"--pp={pp}", f"--dp={dp}", *draw_choices(generator)]
    flags += generator.choice(([], [], [], ["--shard-optimizer-state"], ["--parameter-shares"]))
    if generator.random() < 0.5:
        stages = generator.choice((pp, 2 * pp, min(layers, 3 * pp)))
        if stages <= layers:
            cuts = sorted(generator.sample(range(1, layers), stages - 1))
            counts = [after - before for before, after in zip([0] + cuts, cuts + [layers])]
            flags.append("--layers-per-stage=" + ",".join(map(str, counts)))
            if stages > pp or generator.random() < 0.2:
                places = list(range(pp)) + [generator.randrange(pp) for _ in range(stages - pp)]
                if stages == 2 * pp:
                    places = generator.choice((list(range(pp)) * 2, list(range(pp)) + list(reversed(range(pp)))))
                flags.append("--rank-of-stage=" + ",".join(map(str, places)))
    return flags


def penstock_plan(penstock, profile, lengths, out, flags):
    """Runs `penstock plan`; returns (whether there is a plan, what it said)."""
    command = [penstock, "plan", f"--profile={profile}", f"--lengths={lengths}", f"--out={out}", "--threads=1", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode == 0, done.stdout


def tight_memory(planned_batch, generator):
    """Millions of bytes between what the ranks hold always and what they held at most."""
    static = max(program.static_memory_bytes for program in planned_batch.plan.programs)
    peak = max(rank.peak_memory_bytes for rank in planned_batch.plan.predicted.ranks)
    return (static + (peak - static) * generator.uniform(0.1, 0.9)) / 1e6


def main(arguments):
    parser = argparse.ArgumentParser(description="Makes many plans with random options and reads each.")
    parser.add_argument("--penstock", required=True)
    parser.add_argument("--plans", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--profile", help="a ProfileFile; without one, small ones that are made here")
    parser.add_argument("--lengths")
    parser.add_argument("--rows", default="0:256")
    parser.add_argument("--max-length", type=int, default=250)
    parser.add_argument("--pp", type=int)
    parser.add_argument("--dp", type=int)
    parser.add_argument("--groups", action="store_true", help="stage groups of several ranks too")
    parser.add_argument("--longest", type=int, default=260, help="tokens of the longest sample that is made here")
    parser.add_argument("--keep", help="folder for the plans that differ")
    options = parser.parse_args(arguments)

    schema = load_schema()
    generator = random.Random(options.seed)
    agreed, refused, differing = collections.Counter(), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for number in range(options.plans):
            out, lengths = folder / "plan.json", folder / "lengths.csv"
            profile, rows = options.profile, options.rows
            if profile is None:
                profile = folder / "profile.json"
                profile.write_text(json.dumps(generator.choice(list(PROFILES.values()))), encoding="utf-8")
                lengths.write_text(lengths_csv(options.samples, generator.random(), longest=options.longest), encoding="utf-8")
                rows = f"0:{options.samples}"
            else:
                lengths = options.lengths
            profile_file = load_message(schema, "ProfileFile", profile)
            model = profile_file.model
            layers = model.layers or model.encoder_layers + model.decoder_layers
            flags = [f"--rows={rows}", f"--max-length={options.max_length}"]
            flags += draw_options(generator, layers, options.pp, options.dp, options.groups, model.layers == 0, model.experts)
            for attempt in range(2):
                made, said = penstock_plan(options.penstock, profile, lengths, out, flags)
                if not made:
                    refused[said.split("\n")[0]] += 1
                    break
                try:
                    planned_batch = load_message(schema, "PlannedBatch", out)
                    report = read_plan(schema, planned_batch, profile_file, check_habits=True)
                except (NoCost, Unreadable) as error:
                    print(f"plan {number}: {error}: {' '.join(flags)}")
                    differing += 1
                    break
                agreed["plans"] += not report.differences
                agreed.update(report.agreed)
                agreed[f"schedule {schema.enum_name('Schedule', planned_batch.plan.schedule)}"] += 1
                agreed["shares of parameters"] += planned_batch.plan.options.parameter_shares
                agreed["several meshes"] += len(planned_batch.plan.meshes) > 1
                agreed["second or third strategy"] += planned_batch.plan.strategy > 0
                if report.differences:
                    differing += 1
                    print(f"plan {number}: {profile_file.profile.name}: {' '.join(flags)}")
                    print("\n".join(report.lines()[:5]))
                    if options.keep:
                        for name, path in (("plan", out), ("profile", profile)):
                            Path(options.keep, f"{number}.{attempt}.{name}.json").write_text(Path(path).read_text(), encoding="utf-8")
                flags = flags + [f"--memory-mb={tight_memory(planned_batch, generator):.6f}"]
    for message, count in refused.most_common(12):
        print(f"refused {count}: {message}")
    print(f"{differing} differ; agreed: {json.dumps(dict(sorted(agreed.items())))}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
