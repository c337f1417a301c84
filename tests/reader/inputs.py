"""Small cost profiles and sample lengths, made up so that every term of the contract counts and little comes out even."""

import random

LEVELS = ("none", "selective", "full")


def _layer(name, size, tables=None, closed_form=True, **fields):
    """A LayerCost as JSON. `size` scales its times and bytes; `tables` are axes of its tables: lists of lengths."""
    layer = {
        "name": name,
        "parameter_bytes": 1000003.7 * size,
        "backward_ratio_none": 1.937,
        "backward_ratio_selective": 2.213,
        "backward_ratio_full": 2.941,
        "backward_input_share": 0.537,
        "stored_none": _bytes(913.37 * size),
        "stored_selective": _bytes(517.51 * size),
        "stored_full": _bytes(33.3 * size),
        "peak": _bytes(701.7 * size),
        "tensor": [{"degree": 2, "efficiency": 0.93}, {"degree": 4, "efficiency": 0.871}],
        **fields,
    }
    if closed_form:
        layer["forward"] = {
            "fixed_ns": 1501.25 * size,
            "target_token_ns": 91.313 * size,
            "target_square_ns": 0.21717 * size,
            "cross_ns": 0.13131 * size,
            "source_token_ns": 37.719 * size,
            "source_square_ns": 0.31313 * size,
            "half_efficiency_tokens": 97.5,
            # Heads have no attention.
            "packed_row_ns": 0 if name == "head" else 417.33 * size,
            "target_call_square_ns": 0 if name == "head" else 0.08713 * size,
            "source_call_square_ns": 0 if name == "head" else 0.11917 * size,
            "divided_row_ns": 0 if name == "head" else 173.13 * size,
        }
    if tables:
        layer["forward_ms"] = {"values": _table(tables, 0.0031 * size, gap=closed_form)}
        layer["backward_none_ms"] = {"values": _table(tables, 0.0063 * size, gap=True)}
        layer["backward_full_ms"] = {"values": _table(tables, 0.0097 * size, gap=False)}
    return layer


def _bytes(of_a_token):
    return {"source_token_bytes": 0.77 * of_a_token, "target_token_bytes": of_a_token}


def _table(axes, scale, gap):
    """Row-major values over the axes; with `gap`, the point in the middle was not profiled."""
    values = [0.113 * scale]
    for axis in axes:
        values = [value * (1 + point / 7.0) for value in values for point in axis]
    if gap:
        values[len(values) // 2] = "NaN"
    return values


def gpt_profile(
    tables=False, closed_form=True, layers=8, dtype="BFLOAT16", loss_tokens_only=False, key_value_heads=0, measured=False, cluster=None, hidden=48, heads=4
):
    rows, lengths = [1, 2, 4, 8], [8, 32, 128, 300]
    axes = [rows, lengths] if tables else None
    head = _layer("head", 0.61, axes, closed_form)
    if loss_tokens_only:
        head["loss_tokens_only"] = True
    layer = _layer("layer", 1.0, axes, closed_form)
    if measured:  # Backward passes apart, and a rank's part of a layer, by tensor ranks.
        layer["backward_input"] = {**_layer("part", 1.07)["forward"], "target_square_ns": 0.61713, "half_efficiency_tokens": 31.5}
        layer["backward_weight"] = {"fixed_ns": 311.25, "target_token_ns": 83.417, "packed_row_ns": 29.71}
        for cost, size in zip(layer["tensor"], (0.57, 0.31)):
            cost["forward"] = _layer("part", size)["forward"]
    model = {"architecture": "ARCHITECTURE_GPT", "layers": layers, "hidden": hidden, "heads": heads, "ffn": 192, "vocab": 1000}
    if key_value_heads:
        model["key_value_heads"] = key_value_heads
    profile = {
        "grid": {"micro_batch_size": rows, "target_length": lengths} if tables else None,
        "layers": [layer, head],
    }
    file = _file("gpt", model, profile, dtype)
    file["profile"]["cluster"].update(cluster or {})
    return file


def t5_profile(tables=False, closed_form=True, encoder_layers=5, decoder_layers=4, dtype="BFLOAT16"):
    rows, sources, targets = [1, 2, 4, 8], [4, 40, 160, 300], [2, 16, 64, 220]
    layers = [
        _layer("encoder", 0.8, [rows, sources] if tables else None, closed_form),
        _layer("decoder", 1.3, [rows, sources, targets] if tables else None, closed_form),
        _layer("head", 0.53, [rows, targets] if tables else None, closed_form),
    ]
    model = {
        "architecture": "ARCHITECTURE_T5",
        "encoder_layers": encoder_layers,
        "decoder_layers": decoder_layers,
        "hidden": 40,
        "heads": 4,
        "ffn": 160,
        "vocab": 1000,
    }
    grid = {"micro_batch_size": rows, "source_length": sources, "target_length": targets}
    return _file("t5", model, {"grid": grid if tables else None, "layers": layers}, dtype)


def with_experts(file, experts, measured):
    """The same of a model with experts; `measured`: figures of so many ranks that divide them, by tensor ranks."""
    model = {**file["model"], "experts": experts, "experts_per_token": 3, "feed_forward": "FEED_FORWARD_GATED_SILU"}
    model.update({"feed_forward_biases": "BIASES_NONE", "ffn": 96})
    layers = []
    for layer in file["profile"]["layers"]:
        costs = layer["tensor"] + [{"degree": tensor, "expert": expert, "efficiency": 0.77} for tensor, expert in measured]
        layers.append({**layer, "tensor": sorted(costs, key=lambda cost: (cost["degree"], cost.get("expert", 1)))})
    return {"model": model, "profile": {**file["profile"], "layers": layers}}


def with_gradients(file):
    """The same of layers whose peak has the gradients of one that is made again, which are less than it keeps; those of one that
    puts products for weights aside are between the two."""
    layers = []
    for layer in file["profile"]["layers"]:
        peak = {side: 1.137 * size for side, size in layer["stored_none"].items()}
        split = {side: 0.613 * size for side, size in layer["stored_none"].items()}
        layers.append(layer if layer["name"] == "head" else {**layer, "peak": peak, "split_backward_peak": split})
    return {**file, "profile": {**file["profile"], "layers": layers}}


def with_shared_expert(file, ffn, gated):
    """The same of a model whose tokens share one expert more."""
    return {**file, "model": {**file["model"], "shared_expert_ffn": ffn, "gated_shared_expert": gated}}


def with_dense_layers(file, layers, ffn, size=0.613):
    """The same of a model with experts that some layers have not."""
    model = {**file["model"], "dense_layers": layers, "dense_ffn": ffn}
    of_model = file["profile"]["layers"]
    measured = [{**cost, "efficiency": 0.81} for cost in of_model[0]["tensor"] if "expert" not in cost]
    dense = {**_layer("dense", size), "backward_input_share": 0.491, "tensor": measured}
    return {"model": model, "profile": {**file["profile"], "layers": [of_model[0], dense, *of_model[1:]]}}


def with_small_overhead(file, half_efficiency_tokens=1.75):
    """The same of layers that take hardly longer for tokens in several parts than for all of them at once."""
    layers = []
    for layer in file["profile"]["layers"]:
        form = {**layer["forward"], "fixed_ns": 0.0131 * layer["forward"]["fixed_ns"], "half_efficiency_tokens": half_efficiency_tokens}
        layers.append({**layer, "forward": form})
    return {**file, "profile": {**file["profile"], "layers": layers}}


def with_efficiency(file, points=((7, 1.413), (61, 1.0), (333, 0.917), (1500, 1.131)), embedding=((29, 1.517), (210, 0.883))):
    """The same of layers whose tokens take longer among few, and among many; each kind at numbers of its own."""

    def form(of, shift):
        table = [{"tokens": tokens + shift, "factor": factor} for tokens, factor in points]
        return {**{name: value for name, value in of.items() if name != "half_efficiency_tokens"}, "efficiency": table}

    layers = []
    for number, layer in enumerate(file["profile"]["layers"]):
        forms = {name: form(layer[name], 3 * number + shift) for shift, name in enumerate(("forward", "backward_input", "backward_weight")) if name in layer}
        tensor = [{**cost, "forward": form(cost["forward"], 11)} if "forward" in cost else cost for cost in layer["tensor"]]
        layers.append({**layer, **forms, "tensor": tensor})
    embedded = {**file["profile"]["embedding_forward"], "half_efficiency_tokens": 0, "efficiency": [{"tokens": t, "factor": f} for t, f in embedding]}
    return {**file, "profile": {**file["profile"], "layers": layers, "embedding_forward": embedded}}


def with_windows(file, window, interval, **fields):
    """The same of a model whose layers have a window, but for every interval-th."""
    model = {**file["model"], "attention_window": window, "windowless_interval": interval, **fields}
    return {**file, "model": model}


def with_adapters(file, rank, *targets, **fields):
    """The same of a model of which adapters alone learn."""
    adapters = {"rank": rank, "targets": [f"LINEAR_LAYER_{target}" for target in targets], **fields}
    return {**file, "model": {**file["model"], "adapters": adapters}}


def with_slow_ranks(file, factors):
    """The same of a job in which some ranks are slow."""
    ranks = [{"rank": rank, "factor": factor} for rank, factor in sorted(factors.items())]
    return {**file, "profile": {**file["profile"], "slow_ranks": ranks}}


def with_slow_links(file, factors):
    """The same of a job in which some links are slow, by (from, to)."""
    links = [{"from": ends[0], "to": ends[1], "factor": factor} for ends, factor in sorted(factors.items())]
    return {**file, "profile": {**file["profile"], "slow_links": links}}


def with_large_parameters(file, times, **cluster):
    """The same of layers with so many times the parameters, which come and go in several rounds."""
    layers = [{**layer, "parameter_bytes": times * layer["parameter_bytes"]} for layer in file["profile"]["layers"]]
    of_cluster = {**file["profile"]["cluster"], "memory_bytes": "8000000000", **cluster}
    return {**file, "profile": {**file["profile"], "layers": layers, "cluster": of_cluster}}


def with_uneven_router(file, loads):
    """The same of a job whose router fills one of the ranks that divide experts more than the others; `loads` by their number."""
    loads = [{"ranks": ranks, "fullest": fullest} for ranks, fullest in sorted(loads.items())]
    return {**file, "profile": {**file["profile"], "expert_loads": loads}}


def _file(name, model, profile, dtype):
    """A ProfileFile as JSON."""
    model = {**model, "max_sequence_length": 2048, "dtype": f"DATA_TYPE_{dtype}"}
    profile = {
        "name": name,
        "version": "7",
        **profile,
        "embedding_parameter_bytes": 777777.4,
        "embedding_forward": {"fixed_ns": 311.5, "target_token_ns": 3.17, "source_token_ns": 2.71, "half_efficiency_tokens": 11},
        "state_bytes_per_parameter_byte": 8.03,
        "sharded_state_bytes_per_parameter_byte": 6.01,
        "optimizer_ns_per_parameter_byte": 0.0137,
        "optimizer_fixed_ns": 2307.61,
        "bytes_per_element": {"FLOAT64": 8, "FLOAT32": 4, "BFLOAT16": 2}[dtype],
        "cluster": {
            "memory_bytes": "400000000",
            "intra_node_bytes_per_second": 3.3e9,
            "inter_node_bytes_per_second": 0.7e9,
            "intra_node_latency_ns": "1003",
            "inter_node_latency_ns": "2017",
            "gpus_per_node": 3,
        },
    }
    return {"model": model, "profile": {key: value for key, value in profile.items() if value is not None}}


_LINKS_FOR_PARTS = {
    "intra_node_collective_bytes_per_second": 1.9e8,
    "intra_node_collective_latency_ns": "77",
    "inter_node_collective_bytes_per_second": 3.7e8,
    "inter_node_collective_latency_ns": "409",
}


def _speeds_by_ranks(slowest):
    """Of collectives over so many ranks of a node; `slowest` of 16, bytes a second."""
    return {
        "collective_speeds": [
            {"ranks": 2, "bytes_per_second": 3.3 * slowest, "latency_ns": "61"},
            {"ranks": 4, "bytes_per_second": 1.9 * slowest, "latency_ns": "151"},
            {"ranks": 16, "bytes_per_second": slowest},
        ]
    }


PROFILES = {
    "gpt": gpt_profile(),
    "gpt-loss-only": gpt_profile(loss_tokens_only=True, dtype="FLOAT32"),
    "gpt-tables": gpt_profile(tables=True, closed_form=False),
    "gpt-both": gpt_profile(tables=True, dtype="FLOAT64"),
    "gpt-groups": with_gradients(gpt_profile(
        dtype="FLOAT32",
        key_value_heads=2,
        cluster={"intra_node_collective_bytes_per_second": 1.9e9, "inter_node_collective_latency_ns": "409", "gpus_per_node": 4, "attention_hides_exchange": True, **_speeds_by_ranks(7.1e8)},
    )),
    # Links so slow that attention does not hide what context ranks exchange.
    "gpt-measured": gpt_profile(
        loss_tokens_only=True,
        key_value_heads=1,
        measured=True,
        cluster={"intra_node_collective_bytes_per_second": 2.3e7, "intra_node_collective_latency_ns": "77", "gpus_per_node": 8},
    ),
    "gpt-efficiency": with_efficiency(gpt_profile(tables=True, dtype="FLOAT32")),
    "gpt-efficiency-measured": with_efficiency(gpt_profile(
        loss_tokens_only=True, measured=True, key_value_heads=2,
        cluster={"intra_node_collective_bytes_per_second": 2.3e7, "intra_node_collective_latency_ns": "77", "gpus_per_node": 8, "attention_hides_exchange": True})),
    "gpt-efficiency-parts": with_efficiency(with_small_overhead(with_dense_layers(with_uneven_router(with_experts(
        gpt_profile(key_value_heads=2, cluster={"gpus_per_node": 4, "exchange_overlap": 0.83, "copy_bytes_per_second": 3.1e9, "attention_hides_exchange": True, **_LINKS_FOR_PARTS}), 16, [(1, 2)]), {4: 1.337}), [1, 4, 5, 8], 160))),
    "gpt-efficiency-adapters": with_adapters(with_efficiency(gpt_profile(measured=True)), 7, "QUERY", "VALUE", "UP", "DOWN"),
    "gpt-efficiency-one-point": with_efficiency(gpt_profile(), ((100, 0.813),), ()),
    "t5-efficiency": with_efficiency(t5_profile()),
    "gpt-fast": gpt_profile(cluster={"intra_node_collective_bytes_per_second": 5e11, "intra_node_collective_latency_ns": "7", "gpus_per_node": 16}),
    "gpt-slow": with_slow_ranks(gpt_profile(), {1: 1.37, 3: 2.113}),
    "gpt-slow-links": with_slow_links(gpt_profile(), {(0, 1): 7.31, (1, 0): 3.5, (2, 3): 20.07, (3, 2): 1.001, (5, 1): 2}),
    "gpt-groups-slow": with_slow_ranks(gpt_profile(cluster={"gpus_per_node": 4, "attention_hides_exchange": True}), {2: 1.709, 5: 1.211, 6: 1.533}),
    # Exchanges that products of some experts outlast, and slow ones, as long as all products.
    "gpt-experts-beside": with_experts(
        gpt_profile(key_value_heads=2, cluster={"gpus_per_node": 4, "exchange_overlap": 0.83, "intra_node_collective_bytes_per_second": 2.1e9}), 16, [(1, 2)]),
    "gpt-experts-far": with_experts(
        gpt_profile(key_value_heads=2, cluster={"gpus_per_node": 16, "exchange_overlap": 1, "intra_node_collective_bytes_per_second": 2.9e8}), 16, [(2, 4)]),
    # Micro-batches in parts, whose rows travel inside nodes, and between them: of so many bytes that 7/8 of one is no whole number.
    "gpt-experts-parts": with_small_overhead(with_experts(
        gpt_profile(key_value_heads=2, cluster={"gpus_per_node": 4, "exchange_overlap": 0.83, "copy_bytes_per_second": 7.3e9, "attention_hides_exchange": True, **_LINKS_FOR_PARTS, **_speeds_by_ranks(7.1e7)}), 16, [(1, 2)])),
    "gpt-experts-parts-slow": with_slow_ranks(with_windows(with_small_overhead(with_experts(
        gpt_profile(loss_tokens_only=True, hidden=46, heads=2, cluster={"gpus_per_node": 3, "exchange_overlap": 1, **_LINKS_FOR_PARTS}), 8, [(1, 8)])), 24, 3), {1: 1.37, 6: 1.533}),
    # Forward passes in parts alone: smaller products cost something, copies next to nothing.
    "gpt-experts-joined": with_small_overhead(with_experts(
        gpt_profile(key_value_heads=2, cluster={
            "gpus_per_node": 4, "exchange_overlap": 1, "copy_bytes_per_second": 3.1e11,
            "intra_node_collective_bytes_per_second": 5.1e9, "intra_node_collective_latency_ns": "77"}), 16, [(1, 2)]), 20.25),
    # Routers of which ranks have up to 2.13 times their share of rows.
    "gpt-experts-uneven": with_uneven_router(with_small_overhead(with_experts(
        gpt_profile(key_value_heads=2, cluster={"gpus_per_node": 4, "exchange_overlap": 0.83, **_LINKS_FOR_PARTS}), 16, [(1, 2)])), {2: 1.371, 4: 2.131, 8: 1.83}),
    "gpt-experts": with_experts(gpt_profile(key_value_heads=2, cluster={"gpus_per_node": 4}), 8, [(1, 2), (2, 4)]),
    "gpt-shared-expert": with_shared_expert(with_experts(
        gpt_profile(key_value_heads=2, cluster={"gpus_per_node": 16, "exchange_overlap": 1, "intra_node_collective_bytes_per_second": 2.9e8}), 16, [(2, 4)]), 80, True),
    # Layers without experts below, between and above those that have some.
    "gpt-dense": with_dense_layers(with_experts(gpt_profile(key_value_heads=2, cluster={"gpus_per_node": 4}), 8, [(1, 2), (2, 4)]), [1, 3, 4, 8], 160),
    "gpt-dense-measured": with_dense_layers(with_experts(
        gpt_profile(measured=True, layers=7, loss_tokens_only=True, cluster={"gpus_per_node": 16, "exchange_overlap": 0.83, "intra_node_collective_bytes_per_second": 2.1e8}), 8, [(1, 2)]), [2, 4], 128),
    "gpt-dense-shared": with_gradients(with_dense_layers(with_shared_expert(with_uneven_router(with_experts(
        gpt_profile(key_value_heads=2, cluster={"gpus_per_node": 16, "exchange_overlap": 1, "intra_node_collective_bytes_per_second": 2.9e8}), 16, [(2, 4)]), {2: 1.371, 4: 2.131}), 80, True), [1, 2, 6], 112)),
    "gpt-dense-parts": with_small_overhead(with_dense_layers(with_uneven_router(with_experts(
        gpt_profile(key_value_heads=2, cluster={"gpus_per_node": 4, "exchange_overlap": 0.83, "copy_bytes_per_second": 3.1e9, "attention_hides_exchange": True, **_LINKS_FOR_PARTS}), 16, [(1, 2)]), {4: 1.337}), [1, 4, 5, 8], 160)),
    "gpt-windows": with_windows(gpt_profile(key_value_heads=2, cluster={"attention_hides_exchange": True}), 24, 3),
    "gpt-windows-anywhere": with_windows(gpt_profile(), 16, 0, windowless_layers=[1, 2]),
    "gpt-windows-tables": with_windows(gpt_profile(tables=True, dtype="FLOAT32"), 40, 0),
    "gpt-adapters": with_adapters(gpt_profile(key_value_heads=2, cluster={"gpus_per_node": 4}), 7, "QUERY", "KEY", "VALUE", "OUTPUT", "UP", "DOWN", alpha=11.5),
    "t5-adapters": with_adapters(t5_profile(dtype="FLOAT32"), 5, "QUERY", "VALUE", "DOWN", rank_stabilised=True),
    # RESHARDs that passes outlast, and slow ones.
    "gpt-large": with_large_parameters(gpt_profile(), 9.7, exchange_overlap=1, intra_node_bytes_per_second=8.1e11, inter_node_bytes_per_second=3.7e11),
    "gpt-large-slow": with_large_parameters(gpt_profile(dtype="FLOAT32", key_value_heads=2), 13.1, exchange_overlap=0.83, inter_node_bytes_per_second=5.3e9),
    "t5-large": with_large_parameters(t5_profile(), 11.3, exchange_overlap=0.71, inter_node_bytes_per_second=9.1e10),
    "t5": t5_profile(),
    "t5-tables": t5_profile(tables=True, closed_form=False),
    "t5-both": t5_profile(tables=True, dtype="FLOAT32"),
    "t5-deep-decoder": with_gradients(t5_profile(encoder_layers=2, decoder_layers=7, dtype="FLOAT64")),
}


def lengths_csv(count, seed, longest=260, empty_inputs=True):
    """Lengths with a long tail; some samples have no input, some no target."""
    generator = random.Random(seed)
    lines = ["input_tokens,target_tokens"]
    for index in range(count):
        source = min(longest, int(generator.lognormvariate(3.2, 1.1)) + 1)
        target = min(longest - 60, int(generator.lognormvariate(2.4, 1.0)) + 1)
        if empty_inputs and index % 7 == 3:
            source = 0
        elif empty_inputs and index % 11 == 5:
            target = 0
        lines.append(f"{source},{target}")
    return "\n".join(lines) + "\n"
