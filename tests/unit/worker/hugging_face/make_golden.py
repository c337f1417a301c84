"""Makes the golden values of hugging_face_test.cc with transformers: tiny random checkpoints as save_pretrained writes them, the
loss of some samples, and the gradients, saved like a checkpoint.

    make_golden.py FOLDER [NAME...]
"""

import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

SEED = 7
GENERATED = 8
VOCAB = 40
# (input tokens, target tokens): with and without input, and one that is longer than the others.
LENGTHS = [(3, 4), (0, 9), (5, 4), (2, 1), (6, 17)]


def make_samples(generator, decoder_only):
    """A sample without input is for models that need none: transformers' T5 has no empty source."""
    samples = []
    for input_length, target_length in LENGTHS:
        length = input_length if decoder_only else max(1, input_length)
        tokens = torch.randint(1, VOCAB, (length + target_length,), generator=generator).tolist()
        samples.append({"input": tokens[:length], "target": tokens[length:]})
    return samples


def randomise(model, generator):
    """Values that leave nothing at 0 or 1, so that a forgotten bias or norm shows."""
    # A Gemma adds the 1 itself.
    offset = 0 if model.config.model_type.startswith("gemma") else 1
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator) * 0.25
            parameter.copy_(values + offset if "norm" in name or "ln_" in name else values)


def decoder_only_loss(model, sample):
    """Summed cross entropy of the target tokens that have a token before them, and their number."""
    tokens = torch.tensor([sample["input"] + sample["target"]])
    logits = model(input_ids=tokens, use_cache=False).logits[0]
    first = max(1, len(sample["input"]))
    labels = tokens[0, first:]
    return torch.nn.functional.cross_entropy(logits[first - 1 : -1], labels, reduction="sum"), len(labels)


def encoder_decoder_loss(model, sample):
    labels = torch.tensor([sample["target"]])
    logits = model(input_ids=torch.tensor([sample["input"]]), labels=labels, use_cache=False).logits[0]
    return torch.nn.functional.cross_entropy(logits, labels[0], reduction="sum"), len(sample["target"])


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return transformers.GPT2LMHeadModel(config)


def decoder_config(kind, **changes):
    """What the tiny decoders with rotary positions have in common, but for `changes`. `kind`: a class of transformers."""
    common = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "intermediate_size": 20,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    }
    return kind(**{**common, **changes})


def llama():
    """Grouped queries, heads wider than hidden / heads, the scaling of Llama 3.1; in several files."""
    config = decoder_config(
        transformers.LlamaConfig,
        head_dim=6,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    )
    return transformers.LlamaForCausalLM(config)


def llama_tied():
    """The embedding as head, biases everywhere, a linear scaling."""
    config = decoder_config(
        transformers.LlamaConfig,
        num_attention_heads=2,
        num_key_value_heads=1,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config)


def qwen2():
    """Biases of queries, keys and values alone; its own head."""
    return transformers.Qwen2ForCausalLM(decoder_config(transformers.Qwen2Config))


def mistral():
    """Without a window."""
    config = decoder_config(transformers.MistralConfig, num_key_value_heads=1, head_dim=6, sliding_window=None)
    return transformers.MistralForCausalLM(config)


def phi3():
    """Queries, keys and values are one tensor, gate and up another; a window that hides nothing of these samples."""
    config = decoder_config(transformers.Phi3Config, pad_token_id=0, sliding_window=32)
    return transformers.Phi3ForCausalLM(config)


WINDOW = 5


def mistral_window():
    """A window in all layers, which most samples are longer than."""
    config = decoder_config(transformers.MistralConfig, head_dim=6, sliding_window=WINDOW)
    return transformers.MistralForCausalLM(config)


def phi3_long():
    """The scaling longrope, of which the longest sample has the long factors; three quarters of a head turn."""
    config = decoder_config(
        transformers.Phi3Config,
        hidden_size=32,
        pad_token_id=0,
        max_position_embeddings=64,
        original_max_position_embeddings=16,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1000.0,
            "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.1, 1.3],
            "long_factor": [1.5, 2.5, 4.0],
        },
    )
    return transformers.Phi3ForCausalLM(config)


def qwen2_yarn():
    """The scaling yarn, and windows in every other layer."""
    config = decoder_config(
        transformers.Qwen2Config,
        hidden_size=32,
        rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16},
        use_sliding_window=True,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
    )
    return transformers.Qwen2ForCausalLM(config)


def gemma2():
    """Norms before and behind, caps that bend, windows in every other layer."""
    config = decoder_config(
        transformers.Gemma2Config,
        head_dim=6,
        query_pre_attn_scalar=9,
        sliding_window=WINDOW,
        attn_logit_softcapping=1.5,
        final_logit_softcapping=2.0,
    )
    return transformers.Gemma2ForCausalLM(config)


def gemma3():
    """Norms of queries and keys too, two thetas, every other layer without a window."""
    config = decoder_config(
        transformers.Gemma3TextConfig,
        head_dim=6,
        num_hidden_layers=3,
        query_pre_attn_scalar=9,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.0},
        },
    )
    return transformers.Gemma3ForCausalLM(config)


def olmo2():
    """Norms behind alone, and over all queries and all keys."""
    return transformers.Olmo2ForCausalLM(decoder_config(transformers.Olmo2Config, pad_token_id=0))


def granite():
    """Multipliers of embeddings, residuals, scores and logits."""
    config = decoder_config(
        transformers.GraniteConfig,
        embedding_multiplier=3.0,
        residual_multiplier=0.4,
        attention_multiplier=0.3,
        logits_scaling=2.5,
        tie_word_embeddings=True,
    )
    return transformers.GraniteForCausalLM(config)


def smollm3():
    """A layer of two without positions."""
    config = decoder_config(transformers.SmolLM3Config, no_rope_layer_interval=2, tie_word_embeddings=False, pad_token_id=0)
    return transformers.SmolLM3ForCausalLM(config)


def mixtral():
    """Experts whose weights sum to 1; without a window."""
    config = decoder_config(
        transformers.MixtralConfig, intermediate_size=12, num_local_experts=4, num_experts_per_tok=2, sliding_window=None
    )
    return transformers.MixtralForCausalLM(config)


def qwen3():
    """Norms of queries and keys."""
    return transformers.Qwen3ForCausalLM(decoder_config(transformers.Qwen3Config, head_dim=6))


def qwen3_moe():
    """Norms of queries and keys, and experts whose weights are the router's."""
    config = decoder_config(
        transformers.Qwen3MoeConfig,
        head_dim=6,
        moe_intermediate_size=12,
        num_experts=6,
        num_experts_per_tok=3,
        norm_topk_prob=False,
    )
    return transformers.Qwen3MoeForCausalLM(config)


def qwen3_moe_some():
    """Experts in every other layer but one that is named."""
    config = decoder_config(
        transformers.Qwen3MoeConfig,
        num_hidden_layers=6,
        head_dim=6,
        moe_intermediate_size=12,
        num_experts=6,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        decoder_sparse_step=2,
        mlp_only_layers=[3],
    )
    return transformers.Qwen3MoeForCausalLM(config)


def qwen2_moe_some():
    """Layers that are named have no experts, among them the first."""
    config = decoder_config(
        transformers.Qwen2MoeConfig,
        num_hidden_layers=4,
        moe_intermediate_size=12,
        shared_expert_intermediate_size=14,
        num_experts=4,
        num_experts_per_tok=2,
        mlp_only_layers=[2, 0],
    )
    return transformers.Qwen2MoeForCausalLM(config)


def qwen2_moe():
    """An expert that all tokens share, with its gate, and biases of queries, keys and values."""
    config = decoder_config(
        transformers.Qwen2MoeConfig,
        moe_intermediate_size=12,
        shared_expert_intermediate_size=14,
        num_experts=6,
        num_experts_per_tok=3,
        norm_topk_prob=True,
    )
    return transformers.Qwen2MoeForCausalLM(config)


def olmoe():
    """Norms over all queries and keys, which are then clipped, as values are, to less than many of them."""
    config = decoder_config(
        transformers.OlmoeConfig, intermediate_size=12, num_experts=6, num_experts_per_tok=3, clip_qkv=0.9, norm_topk_prob=False, pad_token_id=0, eos_token_id=2
    )
    return transformers.OlmoeForCausalLM(config)


def t5_config(**changes):
    return transformers.T5Config(
        vocab_size=VOCAB,
        d_model=16,
        d_kv=6,
        d_ff=20,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=2,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        **changes,
    )


def t5():
    return transformers.T5ForConditionalGeneration(t5_config())


def t5_1_1():
    """transformers 5 ties every head of a new T5; published T5 1.1 checkpoints have their own."""
    model = transformers.T5ForConditionalGeneration(t5_config(feed_forward_proj="gated-gelu", tie_word_embeddings=False))
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(torch.empty(VOCAB, model.config.d_model))
    return model


def t5_unscaled():
    """What transformers 5 makes of a new T5 1.1: its head is the table, and what the head reads is not scaled."""
    return transformers.T5ForConditionalGeneration(t5_config(feed_forward_proj="gated-gelu", tie_word_embeddings=False))


MODELS = {
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gpt2": gpt2,
    "granite": granite,
    "llama": llama,
    "llama_tied": llama_tied,
    "mistral": mistral,
    "mistral_window": mistral_window,
    "mixtral": mixtral,
    "olmo2": olmo2,
    "olmoe": olmoe,
    "phi3": phi3,
    "phi3_long": phi3_long,
    "qwen2": qwen2,
    "qwen2_moe": qwen2_moe,
    "qwen2_moe_some": qwen2_moe_some,
    "qwen2_yarn": qwen2_yarn,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "qwen3_moe_some": qwen3_moe_some,
    "smollm3": smollm3,
    "t5": t5,
    "t5_1_1": t5_1_1,
    "t5_unscaled": t5_unscaled,
}


def save_gradients(model, folder):
    """As a checkpoint. Of experts, which are one tensor in memory, save_pretrained makes the tensors that files have."""
    os.makedirs(folder, exist_ok=True)
    if hasattr(model.config, "num_experts_per_tok"):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.grad)
        model.save_pretrained(folder)
        os.remove(f"{folder}/generation_config.json")
        return
    save_file({key: parameter.grad.contiguous() for key, parameter in model.named_parameters()}, f"{folder}/model.safetensors")
    model.config.save_pretrained(folder)


def greedy(model, prompt):
    """The most probable tokens behind a prompt, whatever ends a text."""
    config = transformers.GenerationConfig(max_new_tokens=GENERATED, do_sample=False, pad_token_id=0, decoder_start_token_id=0)
    with torch.no_grad():
        tokens = model.generate(torch.tensor([prompt]), generation_config=config)[0].tolist()
    return tokens[1:] if model.config.is_encoder_decoder else tokens[len(prompt) :]


def make(name, folder):
    generator = torch.Generator().manual_seed(SEED)
    model = MODELS[name]()
    model.set_attn_implementation("eager")
    model.train()
    randomise(model, generator)
    decoder_only = not model.config.is_encoder_decoder
    samples = make_samples(generator, decoder_only)
    losses = [(decoder_only_loss if decoder_only else encoder_decoder_loss)(model, sample) for sample in samples]
    loss = sum(value for value, _ in losses) / sum(count for _, count in losses)
    generated = greedy(model, samples[-1]["input"])
    loss.backward()
    model.save_pretrained(folder, max_shard_size="10KB" if name == "llama" else "1GB")
    os.remove(f"{folder}/generation_config.json")
    save_gradients(model, f"{folder}/gradients")
    with open(f"{folder}/expected.json", "w") as file:
        expected = {"transformers": transformers.__version__, "samples": samples, "loss": loss.item(), "generated": generated}
        json.dump(expected, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for model_name in sys.argv[2:] or MODELS:
        make(model_name, f"{sys.argv[1]}/{model_name}")
