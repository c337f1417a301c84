"""Makes many plans with options drawn at random and reads each: by hand, for hours if need be. The test is plan_reader_test.py.

Usage: python3 tests/reader/sweep.py --penstock build/release/bin/penstock --plans 200 --seed 1
       ... --profile examples/gpt_7b.json --lengths examples/lengths.csv --rows 0:256 --max-length 8192 --pp 4 --dp 2
"""

import argparse
import collections
import json
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from costs import NoCost
from drawn_parts import NoParts, with_drawn_parts
from inputs import PROFILES, lengths_csv
from plan_reader import read_plan
from read_plan import load_message, load_schema
from schema import Unreadable

POLICIES = ("dynamic", "dynamic", "padding", "packed", "concatenated", "token_budget")
SCHEDULES = ("1f1b", "ready-first", "split-backward", "interleaved", "auto")
RECOMPUTES = ("none", "selective", "full", "auto")


# Of the jobs with stage groups, how many are drawn for ranks that divide experts. Their micro-batches may be cut into parts, where
# they have rows enough.
SHARE_OF_EXPERT_RANKS = 0.35
SAMPLES_OF_EXPERT_RANKS = 48
PROFILES_OF_EXPERT_RANKS = [file for file in PROFILES.values() if file["profile"]["cluster"].get("exchange_overlap") and file["model"].get("experts")]
# Tensor and context ranks, and over how many of them the experts are divided.
EXPERT_RANKS = ((1, 2, 2), (1, 2, 2), (1, 4, 2), (1, 4, 4), (1, 8, 8), (2, 1, 2), (2, 2, 2), (2, 2, 4), (4, 1, 4), (4, 2, 8))
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
    """Up to three strategies of as many ranks each, a mesh or several side by side: how many ranks, and the flag."""
    ranks = generator.choice((2, 4, 4, 6, 7, 8, 12))
    meshes = possible_meshes(ranks, groups, is_t5)
    strategies = [[mesh] for mesh in generator.sample(meshes, min(generator.choice((1, 3)), len(meshes)))]
    for index in range(len(strategies)):
        if generator.random() < 0.5:
            strategies[index] = draw_side_by_side(generator, ranks, groups, is_t5)

    def text(pp, dp, tp, cp):
        divided = f" x ep {generator.choice(expert_degrees(tp, cp, experts))}" if experts and tp * cp > 1 else ""
        return f"pp {pp} x dp {dp} x tp {tp} x cp {cp}{divided}"

    return ranks, "--strategies=" + "; ".join(" + ".join(text(*mesh) for mesh in strategy) for strategy in strategies)


def draw_weights(generator, ranks):
    """Of the shares of so many ranks, half of the time."""
    weights = [generator.choice((0, 1, 1, 2, 3, 1000)) for _ in range(ranks)]
    weights[generator.randrange(ranks)] = generator.choice((1, 7))
    return [f"--share-weights={','.join(map(str, weights))}"] if generator.random() < 0.5 else []


def draw_choices(generator):
    """Flags that leave open who is where."""
    flags = [f"--effort={generator.choice(('fast', 'fast', 'normal'))}"]
    flags += [f"--policy={generator.choice(POLICIES)}", f"--schedule={generator.choice(SCHEDULES)}"]
    flags += [f"--recompute={generator.choice(RECOMPUTES)}", f"--layout={generator.choice(('auto', 'packed', 'padded'))}"]
    if generator.random() < 0.3:
        flags.append(f"--micro-batch-size={generator.choice((1, 2, 3))}")
    return flags


def draw_group(generator, is_t5, experts):
    """Flags of a stage group."""
    tp, cp = generator.choice(DEGREES)
    flags = [f"--tp={tp}", f"--cp={1 if is_t5 else cp}"] if tp * cp > 1 else []
    if experts and tp * cp > 1:
        flags.append(f"--ep={generator.choice(expert_degrees(tp, cp, experts))}")
    return flags


def draw_group_with_expert_ranks(generator, experts):
    """The same of one whose micro-batches may be cut into parts."""
    tp, cp, ep = generator.choice([(tp, cp, ep) for tp, cp, ep in EXPERT_RANKS if experts % ep == 0])
    most = [f"--most-parts={generator.choice((1, 2, 3, 4))}"] if generator.random() < 0.3 else []
    return [f"--tp={tp}", f"--cp={cp}", f"--ep={ep}", *most]


def draw_options(generator, layers, pipeline=None, replicas=None, groups=False, is_t5=False, experts=0, expert_ranks=False):
    """Flags of `penstock plan` but for its files. `expert_ranks`: ranks divide the experts."""
    if pipeline is None and replicas is None and not expert_ranks and generator.random() < 0.2:
        ranks, strategies = draw_strategies(generator, groups, is_t5, experts)
        return [strategies, *draw_weights(generator, ranks), *draw_choices(generator)]
    pp = pipeline or generator.choice((1, 2, 2, 3, 4))
    dp = replicas or generator.choice((1, 2, 3))
    flags = []
    if expert_ranks:
        flags = draw_group_with_expert_ranks(generator, experts)
    elif groups:
        flags = draw_group(generator, is_t5, experts)
    flags += [f"--pp={pp}", f"--dp={dp}", *draw_choices(generator)]
    flags += generator.choice(([], [], [], ["--shard-optimizer-state"], ["--parameter-shares"]))
    if "--parameter-shares" not in flags and generator.random() < 0.3:
        flags.append(f"--gradient-bucket-mib={generator.choice((0.0001, 0.01, 1, 16, 1048576))}")
    if "--parameter-shares" in flags:
        degrees = [int(flag.partition("=")[2]) for flag in flags if flag.partition("=")[0] in ("--pp", "--dp", "--tp", "--cp")]
        flags += draw_weights(generator, math.prod(degrees))
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


def tight_flags(planned_batch, generator):
    """Of all ranks, or of some."""
    megabytes = tight_memory(planned_batch, generator)
    if generator.random() < 0.5:
        return [f"--memory-mb={megabytes:.6f}"]
    ranks = len(planned_batch.plan.programs)
    some = sorted(generator.sample(range(ranks), generator.randint(1, ranks)))
    return [f"--rank-memory-mb={','.join(f'{rank}:{megabytes:.6f}' for rank in some)}"]


class Files:
    """Those of a job that are made here, and of its plan."""

    def __init__(self, folder):
        self.plan, self.drawn = folder / "plan.json", folder / "drawn.json"
        self.profile, self.lengths = folder / "profile.json", folder / "lengths.csv"


def make_job(generator, options, files):
    """Writes profile and lengths; returns (number of samples, whether ranks shall divide the experts and nothing else)."""
    expert_ranks = options.groups and generator.random() < SHARE_OF_EXPERT_RANKS
    profiles = PROFILES_OF_EXPERT_RANKS if expert_ranks else list(PROFILES.values())
    samples = max(options.samples, SAMPLES_OF_EXPERT_RANKS if expert_ranks else 0)
    files.profile.write_text(json.dumps(generator.choice(profiles)), encoding="utf-8")
    files.lengths.write_text(lengths_csv(samples, generator.random(), longest=options.longest), encoding="utf-8")
    return samples, expert_ranks


def traits(schema, plan):
    """What plans are counted by."""
    counts = collections.Counter({f"schedule {schema.enum_name('Schedule', plan.schedule)}": 1})
    counts["shares of parameters"] = plan.options.parameter_shares
    counts["weighted shares"] = len(set(plan.options.share_weights)) > 1
    counts["several meshes"] = len(plan.meshes) > 1
    counts["second or third strategy"] = plan.strategy > 0
    micro_batches = [item for replica in plan.replicas for item in replica.micro_batches]
    counts["plans in parts"] = any(item.part_rows for item in micro_batches)
    counts["plans with whole backward passes"] = any(item.whole_backward for item in micro_batches)
    counts["plans with rows that are cut"] = any(item.part_chunks for item in micro_batches)
    counts.update(f"micro-batches in {len(item.part_rows) - 1} parts" for item in micro_batches if item.part_rows)
    return counts


def read_drawn(schema, planned_batch, profile_file, generator, penstock, files):
    """Lines of what is wrong, by reader and `penstock verify`, where micro-batches are cut otherwise. Raises NoParts."""
    drawn = with_drawn_parts(schema, planned_batch, profile_file, generator)
    files.drawn.write_text(json.dumps(schema.json_object(drawn)), encoding="utf-8")
    command = [penstock, "verify", str(files.drawn), f"--profile={files.profile}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    said = [f"verify: {line}" for line in done.stdout.split("\n")] if done.returncode else []
    return read_plan(schema, drawn, profile_file, check_habits=True).lines() + said


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
        files = Files(Path(folder))
        for number in range(options.plans):
            rows, lengths, expert_ranks = options.rows, options.lengths, False
            if options.profile is None:
                samples, expert_ranks = make_job(generator, options, files)
                rows, lengths = f"0:{samples}", files.lengths
            else:
                files.profile = options.profile
            profile_file = load_message(schema, "ProfileFile", files.profile)
            model = profile_file.model
            layers = model.layers or model.encoder_layers + model.decoder_layers
            flags = [f"--rows={rows}", f"--max-length={options.max_length}"]
            flags += draw_options(
                generator, layers, options.pp, options.dp, options.groups, model.layers == 0, model.experts, expert_ranks
            )
            for attempt in range(2):
                made, said = penstock_plan(options.penstock, files.profile, lengths, files.plan, flags)
                if not made:
                    refused[said.split("\n")[0]] += 1
                    break
                try:
                    planned_batch = load_message(schema, "PlannedBatch", files.plan)
                    report = read_plan(schema, planned_batch, profile_file, check_habits=True)
                except (NoCost, Unreadable) as error:
                    print(f"plan {number}: {error}: {' '.join(flags)}")
                    differing += 1
                    break
                agreed["plans"] += not report.differences
                agreed.update(report.agreed)
                agreed.update(traits(schema, planned_batch.plan))
                wrong = report.lines()
                files.drawn.unlink(missing_ok=True)
                try:
                    wrong += read_drawn(schema, planned_batch, profile_file, generator, options.penstock, files)
                    agreed["plans in drawn parts"] += not wrong
                except NoParts:
                    pass
                if wrong:
                    differing += 1
                    print(f"plan {number}: {profile_file.profile.name}: {' '.join(flags)}")
                    print("\n".join(wrong[:5]))
                    if options.keep:
                        for name, path in vars(files).items():
                            if Path(path).exists():
                                Path(options.keep, f"{number}.{attempt}.{name}{Path(path).suffix}").write_text(Path(path).read_text(), encoding="utf-8")
                flags = flags + tight_flags(planned_batch, generator)
    for message, count in refused.most_common(12):
        print(f"refused {count}: {message}")
    print(f"{differing} differ; agreed: {json.dumps(dict(sorted(agreed.items())))}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
