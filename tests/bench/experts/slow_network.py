#!/usr/bin/env python3
"""What computing beside exchanges gains on a slow network: trains a mixture of experts on two ranks that divide them (--cp 2 --ep 2),
one thread a rank, with passes in order, with products for weights beside the exchange of rows, and with micro-batches in parts.

Everything runs in a network namespace of its own whose loopback lets --bandwidth through, which needs root. Each round measures a
profile and trains with it, with at most one part, and with the same profile but cluster.exchange_overlap 0. Ratios are iteration
times in order divided by the others', of one round, beside the same ratio of the planned times.

    tests/bench/experts/slow_network.py --data /data/multitask_tokens.jsonl.gz       # JSON rows on stdout, a table on stderr

Needs `cmake --build build/release --target penstock penstock-planner penstock-worker`.
"""
import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import alternating_runs as runs

INSIDE = "PENSTOCK_BENCH_INSIDE"
MESH = ["--pp", "1", "--cp", "2", "--ep", "2", "--fixed-costs"]
ORDERS = {"in order": [], "weights": ["--most-parts", "1"], "parts": []}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs.add_arguments(parser)
    parser.set_defaults(models="experts", iterations=8)
    parser.add_argument("--bandwidth", default="400mbit", help="of the loopback, as tc writes it")
    return parser.parse_args()


def enter_slow_network(bandwidth):
    """Runs this program once more, where the network is slow."""
    shape = f"ip link set lo up && tc qdisc add dev lo root tbf rate {bandwidth} burst 128kb latency 500ms && exec \"$@\""
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--net", "sh", "-c", shape, "sh", sys.executable, *sys.argv])


def in_order(profile):
    """The same profile where passes wait for exchanges; its file."""
    file = json.loads(Path(profile).read_text())
    file["profile"]["cluster"]["exchangeOverlap"] = 0
    path = profile.replace(".profile.json", ".in_order.json")
    Path(path).write_text(json.dumps(file))
    return path


def table(rows):
    lines = [f"{'passes':<10}{'tokens/s':>10}{'planned ms':>12}{'measured ms':>13}{'in order/it, planned':>24}{'measured':>24}{'loss':>10}"]
    for name in ORDERS:
        planned = runs.with_range(runs.ratios(rows, name, "in order", "planned_iteration_ms"))
        measured = runs.with_range(runs.ratios(rows, name, "in order", "measured_iteration_ms"))
        lines.append(f"{name:<10}{runs.median(rows, name, 'tokens_per_second'):>10,.0f}"
                     f"{runs.median(rows, name, 'planned_iteration_ms'):>12.1f}{runs.median(rows, name, 'measured_iteration_ms'):>13.1f}"
                     f"{planned:>24}{measured:>24}{runs.median(rows, name, 'last_loss'):>10.4f}")
    return "\n".join(lines)


def main():
    args = arguments()
    if INSIDE not in os.environ:
        enter_slow_network(args.bandwidth)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        dataset = runs.import_samples(args, folder)
        for turn in range(args.rounds):
            profile = runs.measure_profile(args, "experts", folder, ["--ep", "2"])
            cluster = json.loads(Path(profile).read_text())["profile"]["cluster"]
            print(f"round {turn}: exchanges at {cluster['intraNodeCollectiveBytesPerSecond'] / 1e6:.0f} MB/s, "
                  f"overlap {cluster.get('exchangeOverlap', 0):.2f}", file=sys.stderr, flush=True)
            waiting = in_order(profile)
            for name in list(ORDERS) if turn % 2 == 0 else reversed(ORDERS):
                costs = waiting if name == "in order" else profile
                rows += runs.one_round(args, "experts", {name: [*MESH, *ORDERS[name]]}, dataset, costs, folder, {}, turn)
        print(table(rows), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
