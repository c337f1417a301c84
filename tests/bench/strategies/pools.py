#!/usr/bin/env python3
"""Iteration times of a 32B Llama on 64 ranks, planned: the best fixed mesh of tensor, pipeline and data ranks with packing, the same
with our micro-batches, the best fixed mesh with stage groups, and a pool of strategies.

The setting is that of Hydraulis' comparison (Li et al. 2024, section 7) as far as its paper says it; hydraulis.py has its own method
beside these. Batches are those that `penstock advise` spreads over the rows. The best mesh of each kind is the one that advise finds.

Usage: tests/bench/strategies/pools.py --penstock build/release/bin/penstock --data FOLDER     (FOLDER/lengths/*.csv)
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from llama_32b import ROOT, llama_32b

RANKS = 64
# Rows that nothing was tuned on, longest sample, samples of a batch: about 100,000 and 200,000 tokens.
SETTINGS = {
    "code, 32,768, about 100,000 tokens": ("code_files.csv", "30000:34608", 32768, 36),
    "code, 32,768, about 200,000 tokens": ("code_files.csv", "30000:34608", 32768, 72),
    "multitask, 8,192, 256 samples": ("multitask_train.csv", "30000:46384", 8192, 256),
}
BATCHES = 16
# Name: further flags of advise.
KINDS = {
    "fixed mesh, packed": ["--cp=1", "--policies=packed", "--shard-optimizer-state"],
    "fixed mesh, dynamic": ["--cp=1", "--policies=dynamic", "--shard-optimizer-state"],
    "fixed mesh, stage groups": ["--policies=dynamic", "--shard-optimizer-state"],
    "pool": ["--strategies=4"],
}


def advise(penstock, profile, data, setting, flags):
    name, rows, longest, samples = setting
    command = [penstock, "advise", f"--profile={profile}", f"--lengths={data / 'lengths' / name}", f"--rows={rows}", f"--max-length={longest}",
               f"--gpus={RANKS}", f"--global-batch={samples}", f"--batches={BATCHES}", "--json", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.strip().splitlines()[0]}


def cells(advice):
    """Milliseconds, and on what."""
    if "error" in advice:
        return None, advice["error"]
    if "strategies" in advice:
        return advice["mean_ms"], "; ".join(f"{one['strategy']} ({len(one['batches'])})" for one in advice["strategies"])
    best = advice["advice"][0]
    return best["makespan_ms"], f"tp {best['tp']} x cp {best['cp']} x pp {best['pp']} x dp {best['dp']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=str(ROOT / "build/release/bin/penstock"))
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    print("| lengths | kind | iteration ms | over the pool | on |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "llama_32b.json"
        profile.write_text(json.dumps(llama_32b()))
        for name, setting in SETTINGS.items():
            times = {kind: cells(advise(options.penstock, profile, options.data, setting, flags)) for kind, flags in KINDS.items()}
            pool = times["pool"][0]
            for kind, (ms, mesh) in times.items():
                print(f"| {name} | {kind} | {'none' if ms is None else f'{ms:,.0f}'} | {'' if ms is None else f'{ms / pool:.2f}'} | {mesh} |", flush=True)


if __name__ == "__main__":
    main()
