"""What docs/kubernetes.md has users put on the volume penstock-data, small: a dataset, and a cost profile measured here."""

import json
import random
import subprocess

SAMPLES, LONGEST, VOCABULARY = 400, 64, 200
# The model that `penstock feed` trains unless flags say otherwise.
MODEL = {"architecture": "ARCHITECTURE_GPT", "layers": 4, "hidden": 128, "heads": 4, "ffn": 512, "vocab": VOCABULARY,
         "maxSequenceLength": LONGEST, "dtype": "DATA_TYPE_FLOAT32"}


def _samples():
    source = random.Random(1)
    for _ in range(SAMPLES):
        tokens = [source.randrange(VOCABULARY) for _ in range(source.randint(4, LONGEST))]
        yield json.dumps({"tokens": tokens})
    # So that the vocabulary is as large as the model's.
    yield json.dumps({"tokens": [0, VOCABULARY - 1]})


def put(binaries, volume):
    """Makes train.idx, train.bin and profile.json."""
    samples, model = volume / "samples.jsonl", volume / "model.json"
    samples.write_text("\n".join(_samples()) + "\n")
    model.write_text(json.dumps(MODEL))
    for words in ([binaries / "penstock", "dataset", "import", "--out", volume / "train", samples],
                  [binaries / "penstock-worker", "profile", "--model-json", model, "--out", volume / "profile.json", "--seconds", "1"]):
        made = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, timeout=120)
        assert made.returncode == 0, f"{words}: {made.stdout}{made.stderr}"
