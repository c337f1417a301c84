#include "worker/profile/measured_shapes.h"

#include <algorithm>

namespace penstock::worker {
namespace {

constexpr int64_t kShortest = 16;
constexpr int64_t kLengthFactor = 4;
// Kernels go through so many tokens at once, and through the rest one by one: with 13 left of 61 tokens
// attention on a CPU takes half as long again as with 64. Real lengths have any rest; those that are measured
// have the mean one.
constexpr int64_t kTokensAtOnce = 16;
constexpr int64_t kRest = 7;
// Beside a rectangle of as many: what each packed row takes.
constexpr size_t kManyRows = 16;

std::vector<int64_t> Lengths(int64_t max_sequence_length) {
  int64_t longest = max_sequence_length;
  if (longest > kTokensAtOnce + kRest) longest -= (longest - kRest) % kTokensAtOnce;
  std::vector<int64_t> lengths;
  for (int64_t length = kShortest; length + kRest < longest; length *= kLengthFactor)
    lengths.push_back(length + kRest);
  lengths.push_back(longest);
  return lengths;
}

// T5's encoder and decoder see texts of different lengths.
std::vector<ShapeLengths> LengthPairs(const ModelConfig& config) {
  std::vector<ShapeLengths> pairs;
  for (const int64_t length : Lengths(config.max_sequence_length)) {
    if (config.architecture == Architecture::kGpt) {
      pairs.push_back({0, length});
      continue;
    }
    const int64_t other = std::max<int64_t>(1, length / kLengthFactor);
    pairs.push_back({length, length});
    pairs.push_back({length, other});
    pairs.push_back({other, length});
  }
  return pairs;
}

ShapeLengths Divided(ShapeLengths lengths, int64_t by) {
  return {lengths.source == 0 ? 0 : std::max<int64_t>(1, lengths.source / by),
          std::max<int64_t>(1, lengths.target / by)};
}

// Neighbours of one length go through kernels of attention in one call, as the rows of a rectangle do, and
// samples of real micro-batches are hardly ever neighbours of one length: these differ by a token.
std::vector<ShapeLengths> ManyRows(ShapeLengths lengths) {
  const ShapeLengths shorter = {lengths.source == 0 ? 0 : std::max<int64_t>(1, lengths.source - 1),
                                std::max<int64_t>(1, lengths.target - 1)};
  std::vector<ShapeLengths> rows;
  for (size_t row = 0; row < kManyRows; ++row) rows.push_back(row % 2 == 0 ? lengths : shorter);
  return rows;
}

void AddSample(MicroBatch& shape, ShapeLengths lengths) {
  shape.sample_ids.push_back(shape.sample_ids.size());
  shape.input_tokens.push_back(static_cast<uint32_t>(lengths.source));
  shape.target_tokens.push_back(static_cast<uint32_t>(lengths.target));
  shape.computed_tokens += lengths.source + lengths.target;
}

}  // namespace

MicroBatch PaddedShape(int64_t rows, ShapeLengths lengths) {
  MicroBatch shape;
  shape.layout = Layout::kPadded;
  shape.rows = rows;
  shape.source_length = lengths.source;
  shape.target_length = lengths.target;
  for (int64_t row = 0; row < rows; ++row) AddSample(shape, lengths);
  return shape;
}

MicroBatch PackedShape(const std::vector<ShapeLengths>& lengths) {
  MicroBatch shape;
  shape.layout = Layout::kPacked;
  shape.source_cu_seqlens = shape.target_cu_seqlens = {0};
  for (const ShapeLengths sample : lengths) {
    AddSample(shape, sample);
    shape.source_cu_seqlens.push_back(shape.source_cu_seqlens.back() + static_cast<int32_t>(sample.source));
    shape.target_cu_seqlens.push_back(shape.target_cu_seqlens.back() + static_cast<int32_t>(sample.target));
  }
  return shape;
}

double TargetSquare(double length, const ShapeWindows& windows) {
  const double beyond = windows.window > 0 ? std::max(0.0, length - static_cast<double>(windows.window)) : 0;
  const double share = static_cast<double>(windows.windowed) / static_cast<double>(windows.layers);
  return length * length - share * beyond * beyond;
}

TokenFigures FiguresOf(const MicroBatch& shape, const ShapeWindows& windows) {
  TokenFigures figures;
  for (size_t i = 0; i < shape.sample_ids.size(); ++i) {
    const double source = shape.input_tokens[i];
    const double target = shape.target_tokens[i];
    figures.source += source;
    figures.target += target;
    figures.source_square += source * source;
    figures.target_square += TargetSquare(target, windows);
    figures.cross += source * target;
  }
  const auto rows = static_cast<double>(shape.sample_ids.size());
  const bool packed = shape.layout == Layout::kPacked;
  if (packed) figures.packed_rows = rows;
  figures.source_call_square = figures.source_square / (packed ? 1 : rows);
  figures.target_call_square = figures.target_square / (packed ? 1 : rows);
  return figures;
}

std::vector<MicroBatch> MeasuredShapes(const ModelConfig& config, int64_t most_tokens) {
  std::vector<MicroBatch> shapes;
  const int64_t longest = Lengths(config.max_sequence_length).back();
  for (const ShapeLengths lengths : LengthPairs(config)) {
    for (const int64_t rows : {1, 4, 16}) shapes.push_back(PaddedShape(rows, lengths));
    shapes.push_back(PackedShape({Divided(lengths, 4), Divided(lengths, 2), Divided(lengths, 4), lengths}));
    const bool same = lengths.source == 0 || lengths.source == lengths.target;
    if (same && lengths.target < longest) shapes.push_back(PackedShape(ManyRows(lengths)));
  }
  std::erase_if(shapes, [&](const MicroBatch& shape) { return shape.computed_tokens > most_tokens; });
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const auto& a, const auto& b) { return a.computed_tokens < b.computed_tokens; });
  return shapes;
}

}  // namespace penstock::worker
