"""transformers' Trainer (5.24.0) and TRL's SFTTrainer (1.16.0) train with planned micro-batches, on a CPU with a tiny model."""

import importlib.util
import os
import random
import tempfile
import unittest

import planners


def has(*names: str) -> bool:
    if not all(importlib.util.find_spec(name) for name in names):
        return False
    from transformers import trainer_pt_utils

    return hasattr(trainer_pt_utils, "BatchRebalanceSampler")


def tiny_model(seed: int = 0):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=97, max_position_embeddings=512, attn_implementation="sdpa", **sizes))


def token_rows(count: int) -> list[dict[str, list[int]]]:
    numbers = random.Random(5)
    return [{"input_ids": [numbers.randrange(97) for _ in range(length)]} for length in planners.lengths_like_tasks(count, longest=200)]


@unittest.skipUnless(has("transformers", "torch", "accelerate"), "transformers 5.24.0 is not installed: see tests/frameworks/run")
@unittest.skipUnless(os.environ.get("PENSTOCK_BINARY"), "PENSTOCK_BINARY names no program")
class Transformers(unittest.TestCase):
    def sampler(self, lengths: list[int], rank: int, **options):
        from penstock.adapters.hugging_face import PlannedSampler

        return PlannedSampler(lengths, 32, 4, 2, rank=rank, planner=planners.real_planner(), **options)

    def test_ranks_have_each_sample_once_and_as_many_steps(self) -> None:
        lengths = planners.lengths_like_tasks(64)
        ranks = [list(self.sampler(lengths, rank)) for rank in range(4)]
        self.assertEqual([len(steps) for steps in ranks], [4, 4, 4, 4])
        self.assertEqual(sorted(place for steps in ranks for step in steps for place in step), list(range(64)))
        self.assertEqual(len(self.sampler(lengths, 0)), 4)

    def test_an_epoch_is_shuffled_by_its_number(self) -> None:
        sampler = self.sampler(planners.lengths_like_tasks(64), 0)
        first = list(sampler)
        sampler.set_epoch(1)
        self.assertNotEqual(first, list(sampler))

    def train(self, planned: bool, folder: str) -> tuple[float, object]:
        import torch
        import transformers
        from penstock.adapters.hugging_face import PlannedTrainer

        class Trainer(PlannedTrainer, transformers.Trainer):
            planner = planners.real_planner()

        model = tiny_model()
        arguments = transformers.TrainingArguments(
            folder, per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=3, learning_rate=1e-3,
            train_sampling_strategy="batch_rebalance", report_to=[], use_cpu=True, logging_steps=1, save_strategy="no", disable_tqdm=True)
        kind = Trainer if planned else transformers.Trainer
        collator = transformers.DataCollatorWithFlattening() if planned else padded
        trainer = kind(model, arguments, train_dataset=token_rows(64), data_collator=collator)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return losses, torch.cat([p.detach().flatten() for p in model.parameters()])

    def test_trains_to_the_loss_of_the_padded_way(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            planned, parameters = self.train(True, folder)
            own, own_parameters = self.train(False, folder)
        self.assertEqual(len(planned), 3)
        for ours, theirs in zip(planned, own, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-5)
        self.assertLess(float((parameters - own_parameters).abs().max()), 1e-5)

    def test_another_strategy_is_an_error(self) -> None:
        import transformers
        from penstock.adapters.hugging_face import PlannedTrainer

        class Trainer(PlannedTrainer, transformers.Trainer):
            planner = planners.real_planner()

        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(folder, report_to=[], use_cpu=True)
            trainer = Trainer(tiny_model(), arguments, train_dataset=token_rows(16))
            with self.assertRaisesRegex(ValueError, "train_sampling_strategy"):
                trainer.get_train_dataloader()


def padded(rows):
    """Rows padded to the longest, as DataCollatorForLanguageModeling without a tokenizer would."""
    import torch

    width = max(len(row["input_ids"]) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), -100)
    for place, row in enumerate(rows):
        ids[place, : len(row["input_ids"])] = labels[place, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
    return {"input_ids": ids, "labels": labels, "attention_mask": (labels != -100).long()}


@unittest.skipUnless(has("transformers", "torch", "trl", "datasets"), "trl 1.16.0 is not installed: see tests/frameworks/run")
@unittest.skipUnless(os.environ.get("PENSTOCK_BINARY"), "PENSTOCK_BINARY names no program")
class Trl(unittest.TestCase):
    def test_its_collator_makes_rows_without_padding_of_planned_micro_batches(self) -> None:
        from penstock.adapters.hugging_face import PlannedSampler
        from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

        rows = token_rows(32)
        lengths = [len(row["input_ids"]) for row in rows]
        sampler = PlannedSampler(lengths, 32, 2, 2, rank=1, planner=planners.real_planner())
        collator = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
        for places in sampler:
            batch = collator([{**rows[place], "seq_lengths": [lengths[place]]} for place in places])
            self.assertEqual(tuple(batch["input_ids"].shape), (1, sum(lengths[place] for place in places)))
            starts = [position for position in batch["position_ids"][0].tolist() if position == 0]
            self.assertEqual(len(starts), len(places))


if __name__ == "__main__":
    unittest.main()
