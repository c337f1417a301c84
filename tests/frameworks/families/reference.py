"""What transformers computes with drawn configurations: a folder for each, which compare_families (C++) compares Penstock with.

    reference.py FOLDER --count 200 --seed 1 --dtype float64|float32

Of each: the checkpoint as save_pretrained writes it; gradients/ and after/, the same with the gradients of the first step and with the
parameters after all steps; expected.json with samples, losses and logits. A configuration that transformers itself does not build is
counted and left out.

With float64 every float32 that transformers asks for inside is float64 too (rotary angles, norms, softmax), so that what differs is what
is computed and not how it is rounded.
"""

import argparse
import json
import os

import torch


SINGLE, DOUBLE = torch.float32, torch.float64


def widen() -> None:
    """Before transformers is imported."""
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double


STEPS = 8
LEARNING_RATE = 1e-3
# Large beside the rounding of gradients that are 0 but for it, which AdamW would make whole steps of.
OPTIMIZER = {"lr": LEARNING_RATE, "betas": (0.9, 0.95), "eps": 1e-3}
WEIGHT_DECAY = 0.1
# (input tokens, target tokens)
LENGTHS = [(3, 4), (1, 9), (5, 4), (2, 1), (6, 17)]


def samples_of(generator, vocab: int) -> list[dict[str, list[int]]]:
    samples = []
    for input_length, target_length in LENGTHS:
        tokens = torch.randint(1, vocab, (input_length + target_length,), generator=generator).tolist()
        samples.append({"input": tokens[:input_length], "target": tokens[input_length:]})
    return samples


def randomise(model, generator) -> None:
    """Values that leave nothing at 0 or 1, so that a forgotten bias or norm shows; numbers of float32 in both formats."""
    offset = 0 if model.config.model_type.startswith("gemma") else 1
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator, dtype=DOUBLE) * 0.2
            values = values + offset if "norm" in name or "ln_" in name else values
            parameter.copy_(values.to(SINGLE))


def logits_of(model, sample):
    """Of the target tokens that have a token before them."""
    if model.config.is_encoder_decoder:
        labels = torch.tensor([sample["target"]])
        return model(input_ids=torch.tensor([sample["input"]]), labels=labels, use_cache=False).logits[0], labels[0]
    tokens = torch.tensor([sample["input"] + sample["target"]])
    logits = model(input_ids=tokens, use_cache=False).logits[0]
    first = len(sample["input"])
    return logits[first - 1 : -1], tokens[0, first:]


def loss_of(model, samples):
    sums, count = 0, 0
    for sample in samples:
        logits, labels = logits_of(model, sample)
        sums = sums + torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        count += len(labels)
    return sums / count


def save(model, values, folder: str) -> None:
    """A checkpoint with other values of the parameters; the model's are left as they were."""
    kept = [parameter.detach().clone() for parameter in model.parameters()]
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(value)
    model.save_pretrained(folder)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), kept, strict=True):
            parameter.copy_(value)


def decays(model) -> list[dict]:
    """Matrices decay, as Penstock has it; experts are several matrices in one tensor."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    return [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]


def make(drawn: dict, folder: str, dtype, generator) -> None:
    import transformers

    kind = getattr(transformers, drawn["class"])
    config = kind.config_class(**drawn["config"])
    config._attn_implementation = config._experts_implementation = "eager"
    model = kind(config).to(dtype).train()
    model.set_attn_implementation("eager")
    randomise(model, generator)
    samples = samples_of(generator, drawn["config"]["vocab_size"])
    model.save_pretrained(folder)
    optimizer = torch.optim.AdamW(decays(model), **OPTIMIZER)
    losses = []
    with torch.no_grad():
        logits = logits_of(model, samples[-1])[0].to(torch.float64).flatten().tolist()
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, samples)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            save(model, [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()], f"{folder}/gradients")
        optimizer.step()
    save(model, [parameter.detach().clone() for parameter in model.parameters()], f"{folder}/after")
    expected = {"transformers": transformers.__version__, "samples": samples, "losses": losses, "logits": logits, "refused": drawn["refused"]}
    with open(f"{folder}/expected.json", "w") as file:
        json.dump(expected, file)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.dtype == "float64":
        widen()
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    from draw import draw

    built = 0
    for drawn in draw(options.count, options.seed):
        folder = f"{options.folder}/{drawn['name']}"
        os.makedirs(folder)
        generator = torch.Generator().manual_seed(options.seed)
        try:
            make(drawn, folder, torch.float64 if options.dtype == "float64" else torch.float32, generator)
            built += 1
        except Exception as error:  # noqa: BLE001: whatever it is, it is transformers' own
            print(f"{drawn['name']}: transformers does not build it: {type(error).__name__}: {str(error)[:200]}")
    print(f"{built} of {options.count} built by transformers {transformers.__version__}, torch {torch.__version__}, {options.dtype}")


if __name__ == "__main__":
    main()
