"""Cost profiles that are wrong on purpose: some of their times are multiplied.

    changed = change({"model": ..., "profile": ...}, "head", 2)        # the head takes twice as long

Profiles are as `penstock profile measure` writes them: closed forms, no tables.
"""
import copy

# Of the backward pass to the forward pass, by recompute.
RATIOS = ("backward_ratio_none", "backward_ratio_selective", "backward_ratio_full")


def key_of(fields, name):
    """Protobuf's JSON has either of two names for a field: backward_ratio_none, backwardRatioNone."""
    first, *others = name.split("_")
    camel = first + "".join(word.capitalize() for word in others)
    return camel if camel in fields else name


def is_time(key):
    return key.endswith(("_ns", "Ns"))


def multiply_times(fields, factor):
    for key, value in fields.items():
        if is_time(key):
            fields[key] = value * factor


def change_layer(layer, factor):
    """All passes: what is not there follows from the forward pass."""
    for name in ("forward", "backward_input", "backward_weight"):
        multiply_times(layer.get(key_of(layer, name), {}), factor)
    for tensor in layer.get("tensor", []):
        multiply_times(tensor.get("forward", {}), factor)


def change_weight_gradients(layer, factor):
    form = layer.get(key_of(layer, "backward_weight"))
    if form is not None:
        multiply_times(form, factor)
        return
    # The backward pass is a ratio of the forward pass, and its share that is no gradient of inputs is one of weights.
    ratio, share = (key_of(layer, name) for name in ("backward_ratio_none", "backward_input_share"))
    # The head makes all of its gradients at once.
    if share not in layer:
        return
    inputs = layer[ratio] * layer[share]
    more = (factor - 1) * (layer[ratio] - inputs)
    for name in RATIOS:
        key = key_of(layer, name)
        if key in layer:
            layer[key] += more
    layer[share] = inputs / layer[ratio]


def change_links(cluster, factor):
    for key, value in cluster.items():
        if key == key_of(cluster, "copy_bytes_per_second"):
            continue
        if key == key_of(cluster, "collective_speeds"):
            for speed in value:
                change_links(speed, factor)
        elif key.lower().endswith(("per_second", "persecond")):
            cluster[key] = value / factor
        elif is_time(key):
            # Protobuf's JSON has whole numbers of 64 bits as texts.
            cluster[key] = round(int(value) * factor)


def change_all(costs, factor):
    for layer in costs["layers"]:
        change_layer(layer, factor)
    multiply_times(costs.get(key_of(costs, "embedding_forward"), {}), factor)
    for name in ("optimizer_ns_per_parameter_byte", "optimizer_fixed_ns"):
        optimizer = key_of(costs, name)
        costs[optimizer] = costs.get(optimizer, 0) * factor
    change_links(costs["cluster"], factor)


def change(file, part, factor):
    """A copy of a profile file in which `part` takes `factor` times as long: "all", "links", "weight gradients", or layers of this name."""
    file = copy.deepcopy(file)
    costs = file["profile"]
    if part == "all":
        change_all(costs, factor)
    elif part == "links":
        change_links(costs["cluster"], factor)
    elif part == "weight gradients":
        for layer in costs["layers"]:
            change_weight_gradients(layer, factor)
    else:
        for layer in costs["layers"]:
            if layer["name"] == part:
                change_layer(layer, factor)
    return file
