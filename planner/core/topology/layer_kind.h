// The kinds of layers that a model is made of, as far as their costs differ.
#pragma once

#include <array>

namespace penstock::core {

// Indexes cost tables. GPT: kDecoder and kHead, and with experts kDense, if some layers have none; its other
// layers are kDecoder. T5: kEncoder, kDecoder and kHead.
enum LayerKind : int { kEncoder = 0, kDecoder = 1, kDense = 2, kHead = 3, kLayerKinds = 4 };

// Those that stages have any number of: all but the head.
inline constexpr int kStackKinds = 3;
inline constexpr std::array<LayerKind, kStackKinds> kKindsOfStacks = {kEncoder, kDecoder, kDense};
inline constexpr std::array<LayerKind, kLayerKinds> kAllKinds = {kEncoder, kDecoder, kDense, kHead};

}  // namespace penstock::core
