"""examples/wandb with the real package, without an account: what is in the file that `wandb sync` would send."""

import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "examples/wandb/to_wandb.py"
# As `up` writes them; iteration 1 was done again, and one line is not whole yet.
LINES = [
    {"iteration": 0, "loss": 5.0, "tokens": 100, "tasks": {"code": {"samples": 3, "loss": 4.5}}},
    {"iteration": 1, "loss": 9.0, "tokens": 90},
    {"iteration": 1, "loss": 4.0, "tokens": 90, "gradient_norm": 0.5},
    {"iteration": 1, "validation_loss": 4.25},
]


BLOCK, HEADER, FULL, LAST = 32768, struct.Struct("<IHB"), 1, 4


def payloads(data: bytes):
    """Of a log as LevelDB has it, behind 7 bytes of W&B's own: records in blocks, in parts where one does not fit."""
    at, whole = 7, b""
    while at + HEADER.size <= len(data):
        if BLOCK - at % BLOCK < HEADER.size:
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = HEADER.unpack_from(data, at)
        whole += data[at + HEADER.size:at + HEADER.size + size]
        at += HEADER.size + size
        if kind in (FULL, LAST):
            yield whole
            whole = b""


def records(folder: pathlib.Path) -> list[dict[str, float]]:
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.rglob("*.wandb")
    found = []
    for payload in payloads(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(payload)
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            found.append({name: value for name, value in items.items() if not name.startswith("_")})
    return found


@unittest.skipUnless(importlib.util.find_spec("wandb"), "wandb is not installed: see tests/frameworks/run")
class Wandb(unittest.TestCase):
    def test_has_the_newest_line_of_each_iteration(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            run = pathlib.Path(name, "mine")
            run.mkdir()
            text = "".join(json.dumps(line) + "\n" for line in LINES) + '{"iteration": 2, "lo'
            (run / "metrics.jsonl").write_text(text, encoding="utf-8")
            (run / "run.json").write_text('{"job": "mine"}', encoding="utf-8")
            environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": name, "WANDB_SILENT": "true", "HOME": name}
            subprocess.run([sys.executable, PROGRAM, run], env=environment, check=True, timeout=200, capture_output=True)
            found = records(pathlib.Path(name))
        self.assertEqual(found, [
            {"iteration": 0, "loss": 5.0, "tokens": 100, "tasks/code/samples": 3, "tasks/code/loss": 4.5},
            {"iteration": 1, "loss": 4.0, "tokens": 90, "gradient_norm": 0.5},
            {"iteration": 1, "validation_loss": 4.25},
        ])


if __name__ == "__main__":
    unittest.main()
