"""Lengths are told from durations as far as they can be, and costs fitted to a trace take in plans what they take in its replay.

Needs PENSTOCK_BINARY in the environment.
"""

import csv
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from costs import Costs, Line, fitted_costs, pass_errors, replay
from lengths import Shape, equal_samples, one_long_sample, samples_of, scale_of, shape_of, total
from trace import NotReadable, read_trace

CONTEXT, SHORTEST = 32768, 512
FIXED = 0.1
COSTS = Costs({"forward": Line(0.13, 0.16), "backward": Line(0.24, 0.57)}, {"forward": 0.0, "backward": 0.0}, {"forward": 0.11, "backward": 0.14}, 2, FIXED)
TRANSFER = 0.005
SCRIPT = Path(__file__).resolve().with_name("trace_lengths")


def drawn_shapes(count):
    """Of micro-batches with many short samples, mixed ones, whole contexts, and one in 200 that is not full."""
    drawn = random.Random(7)
    shapes = []
    for number in range(count):
        squares = [SHORTEST / CONTEXT, drawn.uniform(0.03, 0.8), 1.0][0 if number % 4 == 0 else 2 if number % 10 == 9 else 1]
        tokens = 1.0 if number % 200 != 111 else 0.6
        shapes.append(Shape(tokens, squares if tokens == 1 else tokens * SHORTEST / CONTEXT))
    return shapes


def write_trace(path, steps):
    """`steps`: shapes by replica. Passes begin as if no stage waited for another."""
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["dp_rank", "stage", "step", "optype", "start_ms", "duration_ms", "mb_id"])
        for number, step in enumerate(steps):
            for replica, shapes in enumerate(step):
                for stage in range(COSTS.stages):
                    now = 0.0
                    for micro_batch, shape in enumerate(shapes):
                        for kind in ("forward", "backward"):
                            length = 1e3 * COSTS.seconds(kind, stage, shape)
                            rows.writerow([replica, stage, number, f"{kind}-compute", now, length, micro_batch])
                            now += length
                    rows.writerow([replica, stage, number, "forward-send", now, 1e3 * TRANSFER, -1])


class Inversion(unittest.TestCase):
    def setUp(self):
        self.shapes = drawn_shapes(400)
        self.passes = [COSTS.passes(shape) for shape in self.shapes]
        self.scale = scale_of([total(one) for one in self.passes], SHORTEST / CONTEXT, FIXED)
        self.told = [shape_of(total(one), self.scale) for one in self.passes]

    def test_sums_of_squares_come_back(self):
        for drawn, told in zip(self.shapes, self.told):
            self.assertAlmostEqual(drawn.squares, told.squares, places=3)
            self.assertAlmostEqual(drawn.tokens, told.tokens, places=2)

    def test_fitted_costs_give_passes_back(self):
        fitted = fitted_costs(self.passes, self.told, COSTS.stages, FIXED)
        self.assertLess(max(pass_errors(fitted, self.passes, self.told).values()), 0.002)

    def test_noise_of_passes_moves_sums_of_squares_little(self):
        drawn = random.Random(3)
        noisy = [total({key: length * drawn.gauss(1, 0.01) for key, length in one.items()}) for one in self.passes]
        scale = scale_of(noisy, SHORTEST / CONTEXT, FIXED)
        errors = [abs(shape_of(one, scale).squares - shape.squares) for one, shape in zip(noisy, self.shapes)]
        self.assertLess(sum(errors) / len(errors), 0.015)


class Decompositions(unittest.TestCase):
    def test_both_have_the_tokens_and_squares_they_are_made_for(self):
        for squares in (1 / 64, 0.02, 0.0999, 1 / 3, 0.5, 0.77, 1.0):
            for decomposition in ("equal", "one-long"):
                lengths = samples_of(Shape(1.0, squares), CONTEXT, decomposition, SHORTEST)
                self.assertEqual(sum(lengths), CONTEXT)
                self.assertTrue(all(length > 0 for length in lengths))
                self.assertAlmostEqual(sum(length**2 for length in lengths) / CONTEXT**2, squares, delta=0.003 * squares)

    def test_they_are_the_extremes_of_the_longest_sample(self):
        lengths = [9000, 7000, 6000, 5000, 3000, 1500, 768, 500]
        squares = sum(length**2 for length in lengths)
        self.assertLessEqual(equal_samples(sum(lengths), squares)[0], max(lengths))
        self.assertGreaterEqual(one_long_sample(sum(lengths), squares, 1)[0], max(lengths))

    def test_micro_batches_that_are_not_full_have_fewer_tokens(self):
        self.assertEqual(samples_of(Shape(0.5, 0.5 * SHORTEST / CONTEXT), CONTEXT, "equal", SHORTEST), [SHORTEST] * 32)


class Replay(unittest.TestCase):
    def test_one_micro_batch_goes_down_and_up_again(self):
        passes = COSTS.passes(Shape(1.0, 0.5))
        self.assertAlmostEqual(replay([passes], COSTS.stages, TRANSFER), total(passes) + 2 * TRANSFER)

    def test_equal_micro_batches_keep_the_slowest_stage_busy(self):
        passes = {("forward", 0): 1.0, ("backward", 0): 2.0, ("forward", 1): 2.0, ("backward", 1): 4.0}
        self.assertAlmostEqual(replay([passes] * 8, 2, 0.0), 1 + 8 * 6 + 2)


class Traces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name, "trace.csv")

    def run_script(self, *flags):
        command = [sys.executable, "-B", SCRIPT, f"--trace={self.path}", f"--penstock={os.environ['PENSTOCK_BINARY']}", f"--fixed={FIXED}", *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    def test_a_micro_batch_without_a_backward_pass_is_refused(self):
        self.path.write_text("step,stage,optype,start_ts,duration,mb_id\n0,0,forward-compute,0,1,0\n")
        with self.assertRaises(NotReadable):
            read_trace(self.path)

    def test_a_trace_that_is_not_there_is_skipped(self):
        done = self.run_script()
        self.assertEqual(done.returncode, 77)
        self.assertIn("skipped: no", done.stderr)

    def test_planned_with_its_own_micro_batches_a_trace_takes_as_long_as_its_replay(self):
        shapes = iter([shape for shape in drawn_shapes(400) if shape.tokens == 1])
        write_trace(self.path, [[[next(shapes) for _ in range(8)] for _ in range(4)] for _ in range(10)])
        done = self.run_script("--room=1", "--steps=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        table = [line.split("|") for line in done.stdout.split("| step |")[1].splitlines()[2:]]
        ratios = {name.strip(): float(ratio.split()[0]) for _, name, _, ratio, *_ in table}
        self.assertAlmostEqual(ratios["token_budget, replicas as they were"], 1, delta=0.005)
        self.assertLess(ratios["token_budget, samples of equal length"], 1)
        self.assertLess(ratios["dynamic, room 1, samples of equal length"], ratios["token_budget, samples of equal length"])


if __name__ == "__main__":
    unittest.main()
