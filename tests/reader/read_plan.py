"""Reads a plan and says where it differs from what the contract gives for it.

Usage: python3 tests/reader/read_plan.py plan.json --profile profile.json

The plan is what `penstock plan --out` writes (PlannedBatch), the profile the JSON form of ProfileFile. Needs nothing but Python and the
folder proto/ of this repository. Exit status: 0 nothing differs, 1 something does, 2 the files cannot be read.
"""

import argparse
import json
import sys
from pathlib import Path

from costs import NoCost
from plan_reader import PLAN_FILE, read_plan
from schema import Schema, Unreadable

PROTO_FOLDER = Path(__file__).resolve().parents[2] / "proto"


def load_schema(proto_folder=PROTO_FOLDER):
    return Schema(proto_folder, PLAN_FILE)


def load_message(schema, type_name, path):
    """Reads a message from a JSON file. Raises Unreadable."""
    try:
        return schema.message(type_name, json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, Unreadable) as error:
        raise Unreadable(f"{path}: {error}") from error


def main(arguments):
    parser = argparse.ArgumentParser(description="Recomputes a plan from the contract alone and prints what differs.")
    parser.add_argument("plan", help="JSON of a PlannedBatch, as `penstock plan --out` writes it")
    parser.add_argument("--profile", required=True, help="JSON of the ProfileFile that it was planned with")
    parser.add_argument("--habits", action="store_true", help="also check what is said of Penstock's own planner alone")
    parser.add_argument("--differences", type=int, default=20, help="how many differences are printed (20)")
    options = parser.parse_args(arguments)
    try:
        schema = load_schema()
        planned_batch = load_message(schema, "PlannedBatch", options.plan)
        profile_file = load_message(schema, "ProfileFile", options.profile)
        if profile_file.model is None or profile_file.profile is None:
            raise Unreadable(f"{options.profile}: model or profile is missing")
        report = read_plan(schema, planned_batch, profile_file, options.habits)
    except (Unreadable, NoCost) as error:
        print(f"read_plan: {error}", file=sys.stderr)
        return 2
    for line in report.lines()[: options.differences]:
        print(line)
    agreed = ", ".join(f"{topic} {count}" for topic, count in sorted(report.agreed.items()))
    print(f"{len(report.differences)} differ; agreed: {agreed}")
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
