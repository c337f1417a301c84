"""Adapters beside PEFT: each gradient of the first step; losses, gradient norms and adapters of 8 steps; and what both make of each
other's files.

Needs PENSTOCK_BINARY in the environment, with penstock-planner and penstock-worker beside it, and transformers and peft.
"""

import contextlib
import importlib.util
import json
import os
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

STEPS = 8
VOCAB = 61
RANK, ALPHA = 4, 6
# With so large an epsilon a step is nearly in proportion to the gradient: what adapters are in the end says what gradients were.
TRAINING = {"lr": 0.3, "beta1": 0.9, "beta2": 0.98, "epsilon": 0.1, "weight-decay": 0.05, "clip-norm": 0.8}
# The first step is s = lr * g / (|g| + epsilon), which says what g was: the gradient of each element.
ONE_STEP = TRAINING | {"lr": 500, "epsilon": 0.5, "weight-decay": 0, "clip-norm": 0}
# By family: PEFT's targets, Penstock's, and how the ranks are.
FAMILIES = {
    "gpt2": (["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"], ["--pp", "2"]),
    "llama": (["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], ["--tp", "2"]),
    "qwen3": (["q_proj", "v_proj"], ["--dp", "2", "--shard-optimizer-state"]),
    "t5": (["q", "k", "v", "o", "wi", "wo"], ["--pp", "2", "--schedule", "split-backward"]),
}
TOLERANCE = {"float64": 1e-9, "float32": 1e-5}
# Of a gradient.
GRADIENTS = {"float64": 1e-9, "float32": 1e-5}
# Of adapters after all steps, in float64: transformers turns heads and takes T5's softmax in float32, whatever the model is in.
ENDS = {"gpt2": 1e-9, "llama": 1e-7, "qwen3": 1e-7, "t5": 1e-7}


def penstock(*arguments: object) -> str:
    command = [os.environ["PENSTOCK_BINARY"], *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def make_model(family: str):
    """A small model of random weights, in float64."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM, T5Config, T5ForConditionalGeneration

    torch.manual_seed(7)
    like_llama = {"vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "max_position_embeddings": 64}
    model = {
        "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=16, n_layer=2, n_head=4)),
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**like_llama)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(head_dim=8, **like_llama)),
        "t5": lambda: T5ForConditionalGeneration(T5Config(vocab_size=VOCAB, d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0)),
    }[family]().to(torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.25 * torch.randn_like(parameter))
    return model.eval()


def make_samples(family: str) -> list[dict[str, list[int]]]:
    numbers = random.Random(11)

    def tokens(least: int, most: int) -> list[int]:
        return [numbers.randrange(1, VOCAB) for _ in range(numbers.randrange(least, most))]

    if family == "t5":
        return [{"input": tokens(3, 30), "target": tokens(2, 20)} for _ in range(12)]
    return [{"tokens": tokens(4, 40)} for _ in range(12)]


@contextlib.contextmanager
def widened():
    """Every float32 that transformers asks for inside is float64 (rotary angles, norms, softmax), so that what differs is what is computed and
    not how it is rounded."""
    import torch

    kept = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept[:3]
        torch.set_default_dtype(kept[3])


def batch_loss(model, family: str, samples):
    """The mean over all positions that the loss counts; sample by sample, without padding."""
    import torch

    total, count = 0.0, 0
    for sample in samples:
        if family == "t5":
            labels = torch.tensor([sample["target"]])
            logits = model(input_ids=torch.tensor([sample["input"]]), labels=labels).logits[0]
            wanted = labels[0]
        else:
            ids = torch.tensor([sample["tokens"]])
            logits, wanted = model(input_ids=ids).logits[0, :-1], ids[0, 1:]
        total = total + torch.nn.functional.cross_entropy(logits, wanted, reduction="sum")
        count += len(wanted)
    return total / count


def make_peft(model, family: str):
    """With B that is not 0. GPT-2's c_attn is three of Penstock's layers, each with its own rows of A and columns of B."""
    import torch
    from peft import LoraConfig, get_peft_model

    fused = {"rank_pattern": {"c_attn": 3 * RANK}, "alpha_pattern": {"c_attn": 3 * ALPHA}, "fan_in_fan_out": True} if family == "gpt2" else {}
    task = "SEQ_2_SEQ_LM" if family == "t5" else "CAUSAL_LM"
    adapted = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=FAMILIES[family][0], task_type=task, **fused)).eval()
    for name, parameter in adapted.named_parameters():
        if "lora_B" not in name:
            continue
        with torch.no_grad():
            parameter.copy_(0.1 * torch.randn_like(parameter))
        if "c_attn" in name:
            blocks = torch.block_diag(*[torch.ones(parameter.shape[0] // 3, RANK, dtype=parameter.dtype)] * 3)
            with torch.no_grad():
                parameter.mul_(blocks)
            parameter.register_hook(lambda gradient, blocks=blocks: gradient * blocks)
    return adapted


def train_peft(adapted, family: str, samples) -> tuple[list[float], list[float]]:
    import torch

    learnt = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learnt, lr=TRAINING["lr"], betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["epsilon"],
                                  weight_decay=TRAINING["weight-decay"])
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = batch_loss(adapted, family, samples)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(learnt, TRAINING["clip-norm"])))
        losses.append(float(loss.detach()))
        optimizer.step()
    return losses, norms


@unittest.skipUnless(importlib.util.find_spec("peft") and importlib.util.find_spec("transformers"), "peft is not installed: see tests/frameworks/run")
@unittest.skipUnless(Path(os.environ.get("PENSTOCK_BINARY", "")).with_name("penstock-worker").exists(), "PENSTOCK_BINARY names no program that has penstock-worker beside it")
class Peft(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def prepare(self, family: str):
        """The model and its adapters in both worlds, and data."""
        model, samples = make_model(family), make_samples(family)
        model.save_pretrained(self.folder / "hf")
        adapted = make_peft(model, family)
        adapted.save_pretrained(self.folder / "peft")
        lines = "".join(json.dumps(sample) + "\n" for sample in samples)
        (self.folder / "samples.jsonl").write_text(lines, encoding="utf-8")
        penstock("model", "import", self.folder / "hf", self.folder / "base")
        penstock("model", "import", self.folder / "peft", self.folder / "adapted", "--base", self.folder / "base")
        penstock("dataset", "import", "--out", self.folder / "data", self.folder / "samples.jsonl")
        return adapted, samples

    def train(self, family: str, dtype: str, run: Path, *more: object, steps: int = STEPS, training=TRAINING) -> list[dict[str, float]]:
        flags = [part for name, value in training.items() for part in (f"--{name}", value)]
        # One for all runs: a machine that others use measures another each time, and plans with it.
        profile = self.folder / f"{dtype}.json"
        if not profile.exists():
            model = json.loads((self.folder / "adapted/model.json").read_text(encoding="utf-8"))
            model["dtype"] = f"DATA_TYPE_{dtype.upper()}"
            (self.folder / dtype).mkdir()
            (self.folder / dtype / "model.json").write_text(json.dumps(model), encoding="utf-8")
            degrees = FAMILIES[family][1][1] if "--tp" in FAMILIES[family][1] else "1"
            penstock("profile", "measure", "--model", self.folder / dtype, "--max-length", 64, "--tp", degrees, "--seconds", 1, "--out", profile)
        penstock("up", "--init-from", self.folder / "adapted", "--dataset", self.folder / "data", "--global-batch", 12, "--max-length", 64,
                 "--iterations", steps, "--warmup", 0, "--lr-decay", "constant", "--dtype", dtype, "--profile", profile, "--run-dir", run,
                 *flags, *FAMILIES[family][1], *more)
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]

    def assert_near(self, found: float, expected: float, tolerance: float) -> None:
        self.assertLessEqual(abs(found - expected), tolerance * max(1.0, abs(expected)))

    def assert_adapters_near(self, adapted, exported: Path, tolerance: float) -> None:
        from peft import get_peft_model_state_dict
        from safetensors.torch import load_file

        found = load_file(exported / "adapter_model.safetensors")
        expected = get_peft_model_state_dict(adapted)
        self.assertEqual(set(found), set(expected))
        for name, tensor in expected.items():
            self.assertLessEqual(float((found[name].double() - tensor).abs().max()), tolerance * max(1.0, float(tensor.abs().max())), name)

    def assert_opens_with_the_same_logits(self, adapted, family: str, exported: Path, merged: Path) -> None:
        import torch
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

        kind = AutoModelForSeq2SeqLM if family == "t5" else AutoModelForCausalLM
        base = kind.from_pretrained(self.folder / "hf", dtype=torch.float64)
        inputs = {"input_ids": torch.tensor([[3, 9, 27, 1, 44]])}
        if family == "t5":
            inputs["decoder_input_ids"] = torch.tensor([[0, 5, 6]])
        with torch.no_grad():
            expected = adapted(**inputs).logits
            opened = PeftModel.from_pretrained(base, exported).to(torch.float64).eval()(**inputs).logits
            of_merged = kind.from_pretrained(merged, dtype=torch.float64).eval()(**inputs).logits
        size = max(1.0, float(expected.abs().max()))
        self.assertLessEqual(float((opened - expected).abs().max()), 10 * ENDS[family] * size)
        self.assertLessEqual(float((of_merged - opened).abs().max()), 1e-9 * size)

    def assert_gradients_near(self, adapted, family: str, samples, dtype: str) -> None:
        """Of every element of every adapter, relative to the largest of its tensor, or to a thousandth of the largest of all."""
        from peft import get_peft_model_state_dict
        from safetensors.torch import load_file

        run, exported = self.folder / f"{dtype}-step", self.folder / f"{dtype}-stepped"
        self.train(family, dtype, run, steps=1, training=ONE_STEP)
        penstock("model", "export", run, exported)
        found = load_file(exported / "adapter_model.safetensors")
        adapted.zero_grad()
        with widened():
            batch_loss(adapted, family, samples).backward()
        # Under the names that the file has.
        gradients = {name: parameter.grad for name, parameter in adapted.named_parameters() if parameter.grad is not None}
        expected = get_peft_model_state_dict(adapted, state_dict=gradients)
        before = get_peft_model_state_dict(adapted)
        self.assertEqual(set(found), set(expected))
        least = 1e-3 * max(float(gradient.abs().max()) for gradient in expected.values())
        for name, gradient in expected.items():
            step = before[name] - found[name].double()
            made = step * ONE_STEP["epsilon"] / (ONE_STEP["lr"] - step.abs())
            size = max(least, float(gradient.abs().max()))
            self.assertLessEqual(float((made - gradient).abs().max()), GRADIENTS[dtype] * size, f"{dtype}, {name}")
        adapted.zero_grad()

    def check(self, family: str) -> None:
        with widened():
            adapted, samples = self.prepare(family)
        for dtype in TOLERANCE:
            self.assert_gradients_near(adapted, family, samples, dtype)
        losses, norms = train_peft(adapted, family, samples)
        self.assertGreater(losses[0] - losses[-1], 1e-3)
        for dtype, tolerance in TOLERANCE.items():
            run, exported, merged = (self.folder / f"{dtype}-{what}" for what in ("run", "peft", "merged"))
            records = self.train(family, dtype, run)
            for record, loss, norm in zip(records, losses, norms, strict=True):
                self.assert_near(record["loss"], loss, tolerance)
                self.assert_near(record["gradient_norm"], norm, 10 * tolerance)
            penstock("model", "export", run, exported)
            self.assert_adapters_near(adapted, exported, max(10 * tolerance, ENDS[family]))
            if dtype == "float64":
                penstock("model", "export", run, merged, "--merge")
                self.assert_opens_with_the_same_logits(adapted, family, exported, merged)

    def test_gpt2_trains_as_there(self) -> None:
        self.check("gpt2")

    def test_llama_with_grouped_queries_trains_as_there(self) -> None:
        self.check("llama")

    def test_qwen3_trains_as_there(self) -> None:
        self.check("qwen3")

    def test_t5_trains_as_there(self) -> None:
        self.check("t5")

    def test_a_run_that_is_resumed_ends_with_the_same_bytes(self) -> None:
        self.prepare("llama")
        whole, halved = self.folder / "whole", self.folder / "halved"
        self.train("llama", "float32", whole, "--checkpoint-every", 4, "--fixed-costs")
        self.train("llama", "float32", halved, "--checkpoint-every", 4, "--fixed-costs")
        for folder in (halved / "checkpoints").iterdir():
            if folder.name == f"iteration-{STEPS}":
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()
        # What it began with may go.
        for name in ("adapted", "base"):
            for file in sorted((self.folder / name).rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
        penstock("up", "--resume", "--run-dir", halved)
        for rank in range(2):
            ends = [(run / f"checkpoints/iteration-{STEPS}/rank-{rank}.safetensors").read_bytes() for run in (whole, halved)]
            self.assertEqual(ends[0], ends[1])


if __name__ == "__main__":
    unittest.main()
