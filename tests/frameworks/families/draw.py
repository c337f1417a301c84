"""Draws configurations of the families that Penstock reads, over all of their fields.

    configs = draw(200, seed=1)       # each: {"name", "class", "config", "refused"}

`refused` names the field that Penstock refuses the configuration by, or is empty. Sizes are tiny; what decides what is computed is drawn:
heads and their widths, groups, biases, ties, activations, norms, multipliers, caps, windows, positions and their scalings, experts.
"""

import random

VOCAB = 40
LONGEST = 64


class Draw:
    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def one(self, *values):
        return self.random.choice(values)

    def chance(self, probability: float = 0.5) -> bool:
        return self.random.random() < probability

    def number(self, low: float, high: float) -> float:
        """Of few digits, so that it is the same in every format."""
        return round(self.random.uniform(low, high), 3)

    def scaling(self, kinds: tuple[str, ...], width: int) -> dict:
        """`width`: elements of a head that turn."""
        kind = self.one(*kinds)
        rope = {"rope_type": kind, "rope_theta": self.one(50.0, 1000.0, 10000.0)}
        if kind in ("linear", "llama3", "yarn"):
            rope["factor"] = self.number(1, 8)
        if kind == "llama3":
            rope |= {"low_freq_factor": self.number(0.5, 1.5), "high_freq_factor": self.number(2, 5)}
        if kind in ("llama3", "yarn", "longrope"):
            rope["original_max_position_embeddings"] = self.one(8, 12, 32)
        if kind == "yarn":
            if self.chance():
                rope |= {"beta_fast": self.number(8, 40), "beta_slow": self.number(0.1, 2)}
            if self.chance():
                rope["attention_factor"] = self.number(0.5, 2)
            elif self.chance():
                rope |= {"mscale": self.number(0.5, 2), "mscale_all_dim": self.number(0.5, 2)}
            if self.chance(0.3):
                rope["truncate"] = False
        if kind == "longrope":
            for name in ("short_factor", "long_factor"):
                rope[name] = [self.number(1, 4) for _ in range(width // 2)]
            if self.chance(0.3):
                rope["attention_factor"] = self.number(0.5, 2)
        return rope

    def decoder(self, kinds=("default", "linear", "llama3", "yarn", "longrope"), own_width: bool = True) -> dict:
        """What decoders with rotary positions have in common. `own_width`: heads may be wider than hidden / heads."""
        heads = self.one(2, 4)
        width = self.one(4, 6, 8)
        hidden = heads * self.one(4, 8) if own_width else heads * width
        config = {
            "vocab_size": VOCAB,
            "hidden_size": hidden,
            "intermediate_size": self.one(12, 20),
            "num_hidden_layers": self.one(1, 2, 3),
            "num_attention_heads": heads,
            "num_key_value_heads": self.one(*(n for n in (1, 2, 4) if heads % n == 0)),
            "max_position_embeddings": LONGEST,
            "rms_norm_eps": self.one(1e-6, 1e-5, 1e-3),
            "tie_word_embeddings": self.chance(),
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": self.one(2, [2, 3]),
        }
        if own_width:
            config["head_dim"] = width
        config["rope_parameters"] = self.scaling(kinds, width if own_width else hidden // heads)
        return config

    def window(self) -> int | None:
        return self.one(None, 1, 2, 5, 9, LONGEST)

    def layer_types(self, layers: int) -> list[str]:
        return [self.one("sliding_attention", "full_attention") for _ in range(layers)]

    def qwen_windows(self, config: dict) -> None:
        """Of a Qwen."""
        layers = config["num_hidden_layers"]
        config |= {"use_sliding_window": self.chance(0.7), "sliding_window": self.one(2, 5, 9)}
        way = self.one("list", "none", "all", "some")
        if way == "list":
            types = self.layer_types(layers)
            config["layer_types"] = types if config["use_sliding_window"] else ["full_attention"] * layers
        else:
            config["max_window_layers"] = {"none": layers, "all": 0, "some": layers // 2}[way]

    # One function a family: its class, its fields, and what it is refused by.

    def gpt2(self):
        heads = self.one(1, 2, 4)
        config = {
            "vocab_size": VOCAB,
            "n_embd": heads * self.one(4, 6),
            "n_layer": self.one(1, 2, 3),
            "n_head": heads,
            "n_inner": self.one(None, 20),
            "n_positions": LONGEST,
            "activation_function": self.one("gelu_new", "gelu_pytorch_tanh", "relu", "gelu"),
            "layer_norm_epsilon": self.one(1e-5, 1e-3),
            "tie_word_embeddings": self.chance(),
            "scale_attn_by_inverse_layer_idx": self.chance(0.1),
            "reorder_and_upcast_attn": self.chance(0.2),
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        }
        if config["activation_function"] == "gelu":
            return "GPT2LMHeadModel", config, "activation_function"
        return "GPT2LMHeadModel", config, "scale_attn_by_inverse_layer_idx" if config["scale_attn_by_inverse_layer_idx"] else ""

    def llama(self):
        config = self.decoder() | {"attention_bias": self.chance(), "mlp_bias": self.chance()}
        config["hidden_act"] = self.one("silu", "silu", "silu", "silu", "gelu")
        return "LlamaForCausalLM", config, "" if config["hidden_act"] == "silu" else "hidden_act"

    def granite(self):
        config = self.decoder(own_width=False) | {"attention_bias": self.chance(), "mlp_bias": self.chance()}
        for name in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
            config[name] = self.number(0.2, 3)
        return "GraniteForCausalLM", config, ""

    def mistral(self):
        return "MistralForCausalLM", self.decoder() | {"sliding_window": self.window()}, ""

    def mixtral(self):
        config = self.decoder() | {"sliding_window": self.window()}
        config |= {"num_local_experts": self.one(2, 4), "num_experts_per_tok": self.one(1, 2)}
        return "MixtralForCausalLM", config, ""

    def phi3(self):
        config = self.decoder(("default",), own_width=False)
        width = config["hidden_size"] // config["num_attention_heads"]
        part = self.one(*(part for part in (1.0, 0.75, 0.5) if int(width * part) % 2 == 0))
        rope = self.scaling(("default", "longrope"), int(width * part))
        config["original_max_position_embeddings"] = rope.pop("original_max_position_embeddings", LONGEST)
        config["rope_parameters"] = rope | {"partial_rotary_factor": part}
        config |= {"sliding_window": self.window(), "resid_pdrop": 0.0, "embd_pdrop": 0.0}
        return "Phi3ForCausalLM", config, ""

    def qwen2(self):
        config = self.decoder(own_width=False)
        self.qwen_windows(config)
        return "Qwen2ForCausalLM", config, ""

    def qwen3(self):
        config = self.decoder() | {"attention_bias": self.chance()}
        self.qwen_windows(config)
        return "Qwen3ForCausalLM", config, ""

    def qwen3_moe(self):
        config = self.decoder() | {"attention_bias": self.chance()}
        config |= {"use_sliding_window": self.chance(), "sliding_window": self.one(2, 5, 9)}
        config |= {"moe_intermediate_size": self.one(8, 12), "num_experts": self.one(2, 4), "num_experts_per_tok": self.one(1, 2)}
        config |= {"norm_topk_prob": self.chance(), "decoder_sparse_step": self.one(1, 1, 1, 2)}
        return "Qwen3MoeForCausalLM", config, "decoder_sparse_step" if config["decoder_sparse_step"] > config["num_hidden_layers"] else ""

    def qwen2_moe(self):
        config = self.decoder(own_width=False) | {"qkv_bias": self.chance(0.8), "use_sliding_window": self.chance(0.3), "sliding_window": self.one(2, 5, 9)}
        kind = "sliding_attention" if config["use_sliding_window"] and self.chance() else "full_attention"
        config["layer_types"] = [kind] * config["num_hidden_layers"]
        config |= {"moe_intermediate_size": self.one(8, 12), "num_experts": self.one(2, 4), "num_experts_per_tok": self.one(1, 2)}
        config |= {"shared_expert_intermediate_size": self.one(6, 10), "norm_topk_prob": self.chance()}
        config["mlp_only_layers"] = self.one([], [], [], [0])
        return "Qwen2MoeForCausalLM", config, "decoder_sparse_step" if config["num_hidden_layers"] == 1 and config["mlp_only_layers"] else ""

    def olmoe(self):
        config = self.decoder(own_width=False) | {"attention_bias": self.chance(0.3), "clip_qkv": self.one(None, 0.3, 1.0)}
        config |= {"num_experts": self.one(2, 4), "num_experts_per_tok": self.one(1, 2), "norm_topk_prob": self.chance()}
        return "OlmoeForCausalLM", config, ""

    def smollm3(self):
        config = self.decoder(own_width=False) | {"attention_bias": self.chance(), "mlp_bias": self.chance()}
        config |= {"no_rope_layer_interval": self.one(2, 3, 4), "use_sliding_window": self.chance(0.3), "sliding_window": self.one(2, 5)}
        return "SmolLM3ForCausalLM", config, ""

    def ministral(self):
        config = self.decoder()
        config |= {"sliding_window": self.one(1, 2, 5, 9), "layer_types": self.layer_types(config["num_hidden_layers"])}
        return "MinistralForCausalLM", config, ""

    def cwm(self):
        config = self.decoder(("default", "llama3")) | {"mlp_bias": self.chance()}
        config |= {"sliding_window": self.one(1, 2, 5, 9), "layer_types": self.layer_types(config["num_hidden_layers"])}
        return "CwmForCausalLM", config, ""

    def seed_oss(self):
        config = self.decoder() | {"attention_bias": self.chance(0.7), "attention_out_bias": self.chance(0.3), "mlp_bias": self.chance()}
        config |= {"attention_dropout": 0.0, "residual_dropout": 0.0}
        refused = "attention_out_bias" if config["attention_out_bias"] and not config["attention_bias"] else ""
        return "SeedOssForCausalLM", config, refused

    def exaone4(self):
        config = self.decoder()
        layers = config["num_hidden_layers"]
        config |= {"sliding_window": self.one(None, 2, 5), "sliding_window_pattern": self.one(2, 3, 4)}
        types = ["full_attention"] * layers if config["sliding_window"] is None else self.layer_types(layers)
        config["layer_types"] = types
        return "Exaone4ForCausalLM", config, "" if by_turns(types) or "sliding_attention" not in types else "layer_types"

    def olmo3(self):
        config = self.decoder(("default",), own_width=False) | {"attention_bias": self.chance(), "sliding_window": self.one(1, 3, 7)}
        width = config["hidden_size"] // config["num_attention_heads"]
        full = self.scaling(("default", "yarn", "yarn", "linear"), width)
        config["rope_parameters"] = {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": self.one(50.0, 10000.0)}}
        if self.chance():
            config["layer_types"] = self.layer_types(config["num_hidden_layers"])
        return "Olmo3ForCausalLM", config, ""

    def layer_norms(self, config: dict, epsilon: str) -> None:
        config[epsilon] = config.pop("rms_norm_eps")

    def stablelm(self):
        config = self.decoder(("default",), own_width=False)
        self.layer_norms(config, "layer_norm_eps")
        width = config["hidden_size"] // config["num_attention_heads"]
        part = self.one(*(part for part in (1.0, 0.75, 0.5, 0.25) if int(width * part) % 2 == 0 and int(width * part) > 0))
        rope = self.scaling(("default", "linear", "llama3"), int(width * part))
        config["rope_parameters"] = rope | {"partial_rotary_factor": part}
        config |= {"use_qkv_bias": self.chance(), "hidden_dropout": 0.0}
        config |= {"qk_layernorm": self.chance(0.1), "use_parallel_residual": self.chance(0.1)}
        refused = [name for name in ("qk_layernorm", "use_parallel_residual") if config[name]]
        return "StableLmForCausalLM", config, refused[0] if refused else ""

    def starcoder2(self):
        config = self.decoder(own_width=False) | {"sliding_window": self.window(), "use_bias": self.chance(0.7)}
        self.layer_norms(config, "norm_epsilon")
        return "Starcoder2ForCausalLM", config, ""

    def gemma(self):
        config = self.decoder() | {"attention_bias": self.chance(0.3), "hidden_act": self.one("gelu", "gelu_pytorch_tanh")}
        return "GemmaForCausalLM", config, ""

    def gemma_parts(self, config: dict) -> None:
        layers = config["num_hidden_layers"]
        config |= {"attention_bias": self.chance(0.3), "query_pre_attn_scalar": self.one(4, 9, 16), "sliding_window": self.one(1, 3, 7)}
        config["final_logit_softcapping"] = self.one(None, 1.5, 30.0)
        if self.chance():
            config["layer_types"] = self.layer_types(layers)

    def gemma2(self):
        config = self.decoder()
        self.gemma_parts(config)
        config["attn_logit_softcapping"] = self.one(None, 1.5, 50.0)
        return "Gemma2ForCausalLM", config, ""

    def gemma3_text(self):
        config = self.decoder(("default",))
        self.gemma_parts(config)
        full = self.scaling(("default", "linear", "yarn", "llama3"), config["head_dim"])
        config["rope_parameters"] = {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": self.one(50.0, 10000.0)}}
        return "Gemma3ForCausalLM", config, ""

    def olmo2(self):
        return "Olmo2ForCausalLM", self.decoder(own_width=False) | {"attention_bias": self.chance()}, ""

    def t5(self):
        config = {
            "vocab_size": VOCAB,
            "d_model": self.one(12, 16),
            "d_kv": self.one(4, 6),
            "d_ff": self.one(12, 20),
            "num_layers": self.one(1, 2),
            "num_decoder_layers": self.one(1, 2),
            "num_heads": self.one(2, 4),
            "relative_attention_num_buckets": self.one(4, 8, 32),
            "relative_attention_max_distance": self.one(20, 128),
            "feed_forward_proj": self.one("relu", "gated-gelu", "gated-silu", "gelu"),
            "layer_norm_epsilon": self.one(1e-6, 1e-3),
            "dropout_rate": 0.0,
            "decoder_start_token_id": 0,
            "pad_token_id": 0,
            "tie_word_embeddings": self.chance(0.7),
        }
        refused = "feed_forward_proj" if config["feed_forward_proj"] == "gelu" else ""
        return "T5ForConditionalGeneration", config, refused

    def mt5(self):
        _, config, refused = self.t5()
        return "MT5ForConditionalGeneration", config | {"tie_word_embeddings": True}, refused


FAMILIES = ("gemma2", "gemma3_text", "gpt2", "granite", "llama", "mistral", "mixtral", "olmo2", "olmoe", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "t5",
            "cwm", "exaone4", "gemma", "ministral", "mt5", "olmo3", "seed_oss", "stablelm", "starcoder2")


def by_turns(types: list[str]) -> bool:
    """Whether layers without a window are every n-th."""
    full = [kind == "full_attention" for kind in types]
    if not any(full):
        return True
    turn = full.index(True) + 1
    return all(value == ((i + 1) % turn == 0) for i, value in enumerate(full))


def draw(count: int, seed: int) -> list[dict]:
    """As many of each family, one after the other."""
    drawing = Draw(seed)
    configs = []
    for i in range(count):
        family = FAMILIES[i % len(FAMILIES)]
        kind, config, refused = getattr(drawing, family)()
        configs.append({"name": f"{i:03d}_{family}", "class": kind, "config": config, "refused": refused})
    return configs
