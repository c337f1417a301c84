"""Losses of masked labels are those of transformers: tokens with the label -100 in the middle of a sample, of a decoder alone and of
an encoder-decoder. Needs PENSTOCK_BINARY, with penstock-planner and penstock-worker beside it, in the environment."""

import importlib.util
import json
import os
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

VOCAB = 40
SAMPLES = 12
MASKED = -100
# transformers computes parts of both (norms, rotary angles) in float32, whatever the model's format.
TOLERANCE = 1e-6


def has(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


def masked(numbers: random.Random, tokens: list[int]) -> list[int]:
    """Every run of masks has its own length; the first and the last token are learnt or not."""
    labels = [MASKED if numbers.random() < 0.4 else token for token in tokens]
    return labels if any(label != MASKED for label in labels[1:]) else tokens


def samples(decoder_only: bool) -> list[dict[str, list[int]]]:
    numbers = random.Random(3)
    made = []
    for _ in range(SAMPLES):
        tokens = [numbers.randrange(1, VOCAB) for _ in range(numbers.randrange(3, 24))]
        if decoder_only:
            made.append({"input_ids": tokens, "labels": masked(numbers, tokens)})
        else:
            source = [numbers.randrange(1, VOCAB) for _ in range(numbers.randrange(1, 12))]
            made.append({"input": source, "target": tokens, "labels": masked(numbers, tokens)})
    return made


@unittest.skipUnless(has("transformers", "torch"), "transformers is not installed: see tests/frameworks/run")
@unittest.skipUnless(os.environ.get("PENSTOCK_BINARY"), "PENSTOCK_BINARY names no program")
class MaskedLabels(unittest.TestCase):
    def llama(self):
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4}
        return LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, max_position_embeddings=64, **sizes))

    def t5(self):
        from transformers import T5Config, T5ForConditionalGeneration

        sizes = {"d_model": 16, "d_kv": 4, "d_ff": 20, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
        return T5ForConditionalGeneration(T5Config(vocab_size=VOCAB, decoder_start_token_id=0, dropout_rate=0.0, **sizes))

    def penstock(self, *arguments: str) -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [os.environ["PENSTOCK_BINARY"], *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, env=environment)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stderr}")
        return done.stdout

    def sums(self, model, rows: list[dict[str, list[int]]]) -> tuple[float, int]:
        """Sum of the cross entropy as transformers' own loss has it, times the labels that it counts; and their number."""
        import torch

        total, count = 0.0, 0
        for row in rows:
            labels = torch.tensor([row["labels"]])
            if "input_ids" in row:
                # A decoder alone predicts nothing of its first token.
                learnt = int((labels[0, 1:] != MASKED).sum())
                loss = model(input_ids=torch.tensor([row["input_ids"]]), labels=labels).loss
            else:
                learnt = int((labels != MASKED).sum())
                # What the decoder reads is the whole target, also where it is masked.
                shifted = torch.tensor([[0, *row["target"][:-1]]])
                loss = model(input_ids=torch.tensor([row["input"]]), decoder_input_ids=shifted, labels=labels).loss
            total += loss.item() * learnt
            count += learnt
        return total, count

    def compare(self, name: str, model, rows: list[dict[str, list[int]]]) -> None:
        import torch

        torch.manual_seed(1)
        model = model.double().eval()
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(f"{folder}/hf")
            Path(folder, "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            self.penstock("model", "import", f"{folder}/hf", f"{folder}/model")
            imported = json.loads(self.penstock("dataset", "import", "--json", "--out", f"{folder}/data", f"{folder}/rows.jsonl"))
            flags = ["--init-from", f"{folder}/model", "--dataset", f"{folder}/data", "--max-length", "64", "--global-batch", str(SAMPLES)]
            flags += ["--iterations", "1", "--dtype", "float64", "--pp", "2", "--threads", "1", "--run-dir", f"{folder}/run", "--lr", "0"]
            with torch.no_grad():
                total, count = self.sums(model, rows)
            self.penstock("up", *flags)
            trained = json.loads(Path(folder, "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
            evaluated = json.loads(self.penstock("evaluate", f"{folder}/run", "--dataset", f"{folder}/data", "--json"))
        self.assertEqual(evaluated["predicted_tokens"], count)
        if name == "llama":
            self.assertEqual(imported["predicted_tokens"], count)
        self.assertAlmostEqual(trained["loss"], total / count, delta=TOLERANCE)
        self.assertAlmostEqual(evaluated["loss"], total / count, delta=TOLERANCE)

    def test_of_a_decoder_alone_are_those_of_transformers(self) -> None:
        self.compare("llama", self.llama(), samples(decoder_only=True))

    def test_of_an_encoder_decoder_are_those_of_transformers(self) -> None:
        self.compare("t5", self.t5(), samples(decoder_only=False))


if __name__ == "__main__":
    unittest.main()
