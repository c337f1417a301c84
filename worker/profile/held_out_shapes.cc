#include "worker/profile/held_out_shapes.h"

#include <algorithm>
#include <cmath>

#include "worker/profile/context_shares.h"
#include "worker/profile/measured_shapes.h"
#include "worker/program/share.h"

namespace penstock::worker {
namespace {

// Between those of the fit, which are 16, 64, 256, ... and the model's longest.
constexpr int64_t kShortestHeldOut = 33;
constexpr int64_t kHeldOutFactor = 3;
// Of packed micro-batches: tokens to fill.
constexpr int64_t kFills[] = {150, 500, 1500, 5000};

// Numbers between 0 and 1 that look random and are always the same (Weyl's sequence of the golden ratio).
class Mixed {
 public:
  double Next() {
    at_ = std::fmod(at_ + 0.6180339887498949, 1.0);
    return at_;
  }

 private:
  double at_ = 0.5;
};

// Of a T5 the target of a sample has between a fifth and all of its source's length.
ShapeLengths OfLength(const ModelConfig& config, int64_t length, double share) {
  if (config.architecture == Architecture::kGpt) return {0, length};
  return {length,
          std::max<int64_t>(1, static_cast<int64_t>((0.2 + 0.8 * share) * static_cast<double>(length)))};
}

// Many short, few long: from 8 tokens to the longest, evenly by the logarithm.
int64_t SkewedLength(const ModelConfig& config, double at) {
  const double longest = static_cast<double>(config.max_sequence_length);
  const double shortest = std::min(8.0, longest);
  return static_cast<int64_t>(shortest * std::pow(longest / shortest, at * at));
}

MicroBatch PackedMix(const ModelConfig& config, int64_t tokens, Mixed& mixed) {
  std::vector<ShapeLengths> samples;
  int64_t left = tokens;
  while (left > 0) {
    const int64_t length = std::min(SkewedLength(config, mixed.Next()), std::max<int64_t>(left, 1));
    samples.push_back(OfLength(config, length, mixed.Next()));
    left -= samples.back().source + samples.back().target;
  }
  return PackedShape(samples);
}

std::vector<int64_t> HeldOutLengths(int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t length = kShortestHeldOut; length < longest; length *= kHeldOutFactor)
    lengths.push_back(length);
  // Short samples alone leave nothing between those of the fit.
  lengths.push_back(std::max<int64_t>(1, longest * 4 / 5));
  return lengths;
}

// Long rows are divided, of several such every third over half of the ranks; those that are too short lie
// whole on the rank that is measured.
std::vector<Span> SpansOf(const MicroBatch& shape, int contexts) {
  const int context = MeasuredContext(contexts);
  std::vector<Span> spans;
  size_t divided = 0;
  for (const uint32_t length : shape.target_tokens) {
    int ranks = length >= ShortestDividedRow(contexts) ? contexts : 1;
    if (ranks > 1 && ++divided % 3 == 0) ranks /= 2;
    spans.push_back({static_cast<uint32_t>(context - context % ranks), static_cast<uint32_t>(ranks)});
  }
  return spans;
}

}  // namespace

std::vector<MicroBatch> HeldOutShares(const ModelConfig& config, int contexts, int64_t most_tokens) {
  std::vector<MicroBatch> shapes = HeldOutShapes(config, most_tokens);
  for (const int64_t length : HeldOutLengths(config.max_sequence_length))
    shapes.push_back(PaddedShape(1, {0, length}));
  for (MicroBatch& shape : shapes) shape.spans = SpansOf(shape, contexts);
  std::erase_if(shapes, [](const MicroBatch& shape) { return !AnyRowIsDivided(shape); });
  const int context = MeasuredContext(contexts);
  std::ranges::stable_sort(shapes, {},
                           [&](const MicroBatch& shape) { return TokensOn(shape, Side::kTarget, context); });
  return shapes;
}

std::vector<MicroBatch> HeldOutShapes(const ModelConfig& config, int64_t most_tokens) {
  Mixed mixed;
  std::vector<MicroBatch> shapes;
  for (const int64_t length : HeldOutLengths(config.max_sequence_length)) {
    for (const int64_t rows : {2, 3, 7})
      shapes.push_back(PaddedShape(rows, OfLength(config, length, mixed.Next())));
  }
  for (const int64_t tokens : kFills) shapes.push_back(PackedMix(config, tokens, mixed));
  std::erase_if(shapes, [&](const MicroBatch& shape) { return shape.computed_tokens > most_tokens; });
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const auto& a, const auto& b) { return a.computed_tokens < b.computed_tokens; });
  return shapes;
}

}  // namespace penstock::worker
