"""transformers' Trainer (5.24.0) on samples of very different lengths: its own ways, which pad, or with planned micro-batches.

    train.py planned --planner 127.0.0.1:7070       (without --planner: one of its own)
    train.py packed         planned rows without padding, for attention that takes lengths that vary
    train.py rebalanced     the Trainer's own balance (train_sampling_strategy="batch_rebalance")
    train.py own            what it does unless told otherwise: samples in random order, padded

All take the same global batches. A small Llama with random weights, on a CPU; tokens are random, lengths are those of
examples/lengths.csv. Prints JSON: losses and tokens/s.
"""

import argparse
import contextlib
import csv
import json
import random
import tempfile
import time
from pathlib import Path

import penstock
import torch
import transformers
from penstock.adapters.connection import ClientPlanner
from penstock.adapters.hugging_face import PlannedTrainer

HERE = Path(__file__).resolve().parent
PROFILE = HERE.parent / "pytorch/profile.json"  # of a model of this size on one core
LAYOUTS = {"planned": "LAYOUT_CHOICE_PADDED", "packed": "LAYOUT_CHOICE_PACKED"}
LAYERS, HIDDEN, HEADS, VOCABULARY, LONGEST = 4, 256, 4, 4096, 1024


def rows_of(count):
    """{"input_ids": [...]} of each sample."""
    numbers = random.Random(3)
    with open(HERE.parent / "lengths.csv", newline="") as file:
        lengths = [int(row["input_tokens"]) + int(row["target_tokens"]) for row, _ in zip(csv.DictReader(file), range(count))]
    return [{"input_ids": [numbers.randrange(VOCABULARY) for _ in range(min(length, LONGEST))]} for length in lengths]


def llama():
    torch.manual_seed(1)
    sizes = {"hidden_size": HIDDEN, "intermediate_size": 4 * HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=LONGEST, attn_implementation="sdpa", **sizes)
    return transformers.LlamaForCausalLM(config)


def padded(rows):
    """Rows padded to the longest, as DataCollatorForLanguageModeling makes them with a tokenizer."""
    rows = [torch.tensor(row["input_ids"]) for row in rows]
    fill = torch.nn.utils.rnn.pad_sequence
    labels = fill(rows, batch_first=True, padding_value=-100)
    return {"input_ids": fill(rows, batch_first=True), "labels": labels, "attention_mask": (labels != -100).long()}


def trainer_of(way, planner, folder, rows, steps, batch, accumulation):
    arguments = transformers.TrainingArguments(
        folder, per_device_train_batch_size=batch // accumulation, gradient_accumulation_steps=accumulation, max_steps=steps,
        learning_rate=1e-3, train_sampling_strategy="random" if way == "own" else "batch_rebalance", logging_steps=1, save_strategy="no", report_to=[],
        use_cpu=True, disable_tqdm=True)  # fmt: skip
    if way not in LAYOUTS:
        return transformers.Trainer(llama(), arguments, train_dataset=rows, data_collator=padded)

    class Trainer(PlannedTrainer, transformers.Trainer):
        pass

    # Rows without padding want a kernel for lengths that vary: on a CPU a row costs its square.
    collator = transformers.DataCollatorWithFlattening() if LAYOUTS[way] == "LAYOUT_CHOICE_PACKED" else padded
    made = Trainer(llama(), arguments, train_dataset=rows, data_collator=collator)
    made.planner, made.padded_rows = planner, collator is padded
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=["own", "rebalanced", *LAYOUTS])
    parser.add_argument("--planner", help="host:port; without it one is started")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32, help="samples of a global batch")
    parser.add_argument("--accumulation", type=int, default=4, help="micro-batches of a step")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    rows = rows_of(arguments.steps * arguments.batch)
    with contextlib.ExitStack() as stack:
        planner = None
        if arguments.way in LAYOUTS:
            client = penstock.Client(arguments.planner) if arguments.planner else stack.enter_context(penstock.local()).client
            planner = ClientPlanner(client, profile=PROFILE, options={"layout": LAYOUTS[arguments.way]})
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        trainer = trainer_of(arguments.way, planner, folder, rows, arguments.steps, arguments.batch, arguments.accumulation)
        trainer.remove_callback(transformers.PrinterCallback)
        begin = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begin
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    tokens = sum(len(row["input_ids"]) for row in rows)
    print(json.dumps({"way": arguments.way, "losses": losses, "tokens_per_second": tokens / seconds}))


if __name__ == "__main__":
    main()
