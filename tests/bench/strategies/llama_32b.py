"""A cost profile of a 32B Llama on 80 GB accelerators of 200 TFLOP/s, 8 a node: the setting of Hydraulis' comparison (Li et al. 2024, section 7)."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FLOPS = 200e12
HIDDEN, LAYERS, FFN, VOCAB = 6656, 60, 17920, 32000
# Heads: tensor degrees and what of their speed products keep. What does not divide a model is never taken: 13 and 26 not the width of
# 17,920. With 64 heads 8 and 16 can be had, as in Hydraulis' own runs.
TENSOR = {52: ((2, 0.95), (4, 0.9), (13, 0.8), (26, 0.7)), 64: ((2, 0.95), (4, 0.9), (8, 0.85), (16, 0.75))}
# Fixed costs and half efficiency as in the reference profile of GPT 6.7B.
HALF_EFFICIENCY_TOKENS = 512
FIXED_NS = 300_000


def nanoseconds(flops):
    return flops / FLOPS * 1e9


def llama_32b(heads=52):
    """As `penstock` reads it (execution.md, section 14, ProfileFile)."""
    weights = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * FFN
    # bf16: inputs of the linear layers, of norms and of the products inside (Korthikanti et al. 2022, section 4, for a gated layer).
    kept = 2 * (7 * HIDDEN + 3 * FFN)
    layer = {
        "name": "layer",
        "parameter_bytes": 2 * weights,
        "forward": {"fixed_ns": FIXED_NS, "target_token_ns": nanoseconds(2 * weights), "target_square_ns": nanoseconds(2 * HIDDEN), "half_efficiency_tokens": HALF_EFFICIENCY_TOKENS},
        "backward_ratio_none": 2,
        "backward_ratio_full": 3,
        "backward_input_share": 0.5,
        "stored_none": {"target_token_bytes": kept},
        "stored_full": {"target_token_bytes": 2 * HIDDEN},
        "peak": {"target_token_bytes": kept},
    }
    head = {
        "name": "head",
        "parameter_bytes": 2 * HIDDEN * VOCAB,
        "forward": {"target_token_ns": nanoseconds(2 * HIDDEN * VOCAB), "half_efficiency_tokens": HALF_EFFICIENCY_TOKENS},
        "backward_ratio_none": 2,
        "loss_tokens_only": True,
    }
    tensor = [{"degree": degree, "efficiency": efficiency} for degree, efficiency in TENSOR[heads]]
    layer["tensor"] = head["tensor"] = tensor
    cluster = {
        "memory_bytes": 80_000_000_000,
        "intra_node_bytes_per_second": 600e9,
        "inter_node_bytes_per_second": 100e9,
        "intra_node_latency_ns": 10_000,
        "inter_node_latency_ns": 20_000,
        "gpus_per_node": 8,
        "intra_node_collective_bytes_per_second": 300e9,
        "attention_hides_exchange": True,
        # As on all accelerators: an exchange has a stream of its own.
        "exchange_overlap": 1,
    }
    return {
        "model": {"architecture": "ARCHITECTURE_GPT", "layers": LAYERS, "hidden": HIDDEN, "heads": heads, "ffn": FFN, "vocab": VOCAB, "max_sequence_length": 131072, "dtype": "DATA_TYPE_BFLOAT16", "feed_forward": "FEED_FORWARD_GATED_SILU", "position": "POSITION_ROTARY", "norm": "NORM_RMS"},
        "profile": {
            "name": "llama_32b",
            "version": 1,
            "layers": [layer, head],
            "embedding_parameter_bytes": 2 * HIDDEN * VOCAB,
            "state_bytes_per_parameter_byte": 8,
            "sharded_state_bytes_per_parameter_byte": 6,
            "optimizer_ns_per_parameter_byte": 0.0008,
            "bytes_per_element": 2,
            "cluster": cluster,
        },
    }


if __name__ == "__main__":
    print(json.dumps(llama_32b(), indent=1))
