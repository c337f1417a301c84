"""What examples/shares gives the ranks of a plan is what the worker gives them, and every token once.

Needs PENSTOCK_BINARY and WORKER_SHARES in the environment.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/shares"))
from shares import shares_of  # noqa: E402

# input_tokens,target_tokens: long ones, which are divided, among short ones; no input, and no target.
LONG = "7001,1000\n30,10\n2500,1200\n0,400\n900,300\n60,0\n3,40\n4100,900\n1,1\n200,100\n0,1\n77,5\n"
# name: (rows of LONG, or of examples/lengths.csv; flags of `penstock plan`)
CASES = {
    "packed, pp 2, tp 2, cp 4": ("long", "--tp=2 --cp=4 --pp=2 --policy=packed"),
    "dynamic, cp 8, dp 2": ("long", "--cp=8 --dp=2"),
    "padded, tp 2, cp 4": ("long", "--tp=2 --cp=4 --policy=padding --micro-batch-size=3"),
    "concatenated, cp 4": ("long", "--cp=4 --pp=2 --policy=concatenated --recompute=full"),
    "examples, tp 2, cp 4, pp 2": ("0:96", "--tp=2 --cp=4 --pp=2"),
    "no stage groups": ("0:32", "--pp=4 --dp=2"),
}


class Shares(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        long_lengths = Path(cls.folder.name) / "long.csv"
        long_lengths.write_text("input_tokens,target_tokens\n" + LONG, encoding="utf-8")
        cls.plans = {}
        for name, (rows, flags) in CASES.items():
            path = Path(cls.folder.name) / f"{len(cls.plans)}.json"
            command = [os.environ["PENSTOCK_BINARY"], "plan", f"--profile={ROOT / 'examples/gpt_7b.json'}", f"--out={path}"]
            command += [f"--lengths={long_lengths if rows == 'long' else ROOT / 'examples/lengths.csv'}"]
            command += [f"--rows={'0:12' if rows == 'long' else rows}", "--max-length=8192", "--effort=fast", "--threads=1"]
            command += ["--shard-optimizer-state", "--memory-mb=400000", *flags.split()]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}: {done.stdout}")
            cls.plans[name] = (path, json.loads(path.read_text(encoding="utf-8")))

    def test_plans_have_mixed_spans(self):
        spans = Counter()
        for _, planned in self.plans.values():
            for replica in planned["plan"]["replicas"]:
                for micro_batch in replica["micro_batches"]:
                    spans.update({ranks: 1 for ranks in micro_batch.get("span_ranks", [])})
        self.assertGreater(spans[1], 0)
        self.assertGreater(spans[4] + spans[8], 0, spans)

    def test_are_the_workers(self):
        for name, (path, planned) in self.plans.items():
            done = subprocess.run([os.environ["WORKER_SHARES"], path], stdout=subprocess.PIPE, text=True, check=True)
            workers = [json.loads(line) for line in done.stdout.splitlines()]
            ours = {(rank, number): share for _, rank, number, share in shares_of(planned)}
            self.assertEqual(sorted(ours), sorted((worker["rank"], worker["micro_batch"]) for worker in workers), name)
            for worker in workers:
                with self.subTest(name, rank=worker["rank"], micro_batch=worker["micro_batch"]):
                    self._compare(ours[worker["rank"], worker["micro_batch"]], worker, planned)

    def _compare(self, ours, worker, planned):
        pieces = worker["pieces"]
        self.assertEqual(ours["cu_seqlens"], [sum(piece[2] for piece in pieces[:end]) for end in range(len(pieces) + 1)])
        self.assertEqual(ours["key_lengths"], [first + length for _, first, length in pieces])
        flat = flat_tokens(planned, worker["rank"], worker["micro_batch"])
        expected = [flat[place] for begin, length in worker["runs"] for place in range(begin, begin + length)]
        self.assertEqual(ours["tokens"], expected)

    def test_have_every_token_once(self):
        for name, (_, planned) in self.plans.items():
            samples = {int(sample.get("sample_id", 0)): sample for sample in planned["batch"]["samples"]}
            expected = Counter((sample, place) for sample in samples for place in range(length_of(samples[sample])))
            tensors = planned["plan"]["mesh"].get("tensor", 1)
            seen, losses = {}, Counter()
            for stage, _, _, share in shares_of(planned):
                real = [token for token in share["tokens"] if token[0] is not None]
                seen.setdefault(stage, Counter()).update(real)
                losses[stage] += sum(share["loss_mask"])
                self._check_places(share, samples)
            for stage, tokens in seen.items():
                with self.subTest(name, stage=stage):
                    self.assertEqual(tokens, Counter({token: tensors for token in expected}))
                    self.assertEqual(losses[stage], tensors * int(planned["plan"]["loss_tokens"]))

    def _check_places(self, share, samples):
        self.assertEqual(len(share["tokens"]), share["cu_seqlens"][-1])
        for (sample, place), position, learnt in zip(share["tokens"], share["position_ids"], share["loss_mask"], strict=True):
            if sample is None:
                self.assertFalse(learnt)
                continue
            self.assertEqual(position, place)
            first = max(samples[sample].get("input_tokens", 0), 1)
            self.assertEqual(learnt, first <= place + 1 < length_of(samples[sample]))


def length_of(sample):
    return sample.get("input_tokens", 0) + sample.get("target_tokens", 0)


def flat_tokens(planned, rank, number):
    """(sample_id, place) at each place of the flat micro-batch of a rank; (None, None) in padding."""
    plan = planned["plan"]
    replica = plan["programs"][rank].get("replica", 0)
    micro_batch = plan["replicas"][replica]["micro_batches"][number]
    samples = [planned["batch"]["samples"][index] for index in micro_batch["samples"]]
    length, rows = micro_batch.get("target_length", 0), micro_batch.get("rows", 0)
    flat = [(None, None)] * (rows * length or micro_batch["target_cu_seqlens"][-1])
    if rows:
        row_samples = micro_batch.get("row_samples", range(rows + 1))
        begins = [row * length + sum(map(length_of, samples[row_samples[row] : index])) for row in range(rows) for index in range(*row_samples[row : row + 2])]
    else:
        begins = micro_batch["target_cu_seqlens"]
    for sample, begin in zip(samples, begins):
        for place in range(length_of(sample)):
            flat[begin + place] = (int(sample.get("sample_id", 0)), place)
    return flat


if __name__ == "__main__":
    unittest.main()
