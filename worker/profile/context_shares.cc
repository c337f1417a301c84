#include "worker/profile/context_shares.h"

#include <algorithm>
#include <cstddef>

#include "worker/program/share.h"

namespace penstock::worker {
namespace {

// Of a chunk: kernels of fewer tokens take their start, and no time to speak of.
constexpr int64_t kShortestChunk = 4;

std::vector<ShapeLengths> LengthsOf(const MicroBatch& shape) {
  std::vector<ShapeLengths> lengths;
  for (size_t i = 0; i < shape.sample_ids.size(); ++i)
    lengths.push_back({shape.input_tokens[i], shape.target_tokens[i]});
  return lengths;
}

}  // namespace

int64_t ShortestDividedRow(int contexts) { return 2 * kShortestChunk * contexts; }

MicroBatch DividedShape(const MicroBatch& whole, int contexts) {
  const std::vector<ShapeLengths> lengths = LengthsOf(whole);
  MicroBatch divided;
  if (whole.layout == Layout::kPacked) {
    std::vector<ShapeLengths> rows;
    for (const ShapeLengths& row : lengths) rows.insert(rows.end(), static_cast<size_t>(contexts), row);
    divided = PackedShape(rows);
  } else {
    divided = PaddedShape(contexts * whole.rows, lengths.front());
  }
  divided.spans.assign(divided.sample_ids.size(), Span{0, static_cast<uint32_t>(contexts)});
  return divided;
}

std::vector<MicroBatch> ShapesToDivide(absl::Span<const MicroBatch> shapes, int contexts) {
  std::vector<MicroBatch> long_enough;
  for (const MicroBatch& shape : shapes) {
    const uint32_t shortest = *std::ranges::min_element(shape.target_tokens);
    if (shortest >= ShortestDividedRow(contexts)) long_enough.push_back(shape);
  }
  return long_enough;
}

TokenFigures ShareFiguresOf(const MicroBatch& shape, int context, const ShapeWindows& windows) {
  TokenFigures figures;
  figures.target = static_cast<double>(TokensOn(shape, Side::kTarget, context));
  const std::vector<int64_t> lengths = RowLengths(shape, Side::kTarget);
  for (size_t row = 0; row < lengths.size(); ++row) {
    const Span& span = shape.spans[row];
    if (context < static_cast<int>(span.first) || context >= static_cast<int>(span.first + span.ranks))
      continue;
    figures.target_square += TargetSquare(static_cast<double>(lengths[row]), windows) / span.ranks;
    ++figures.packed_rows;
    if (span.ranks > 1) ++figures.divided_rows;
  }
  figures.target_call_square = figures.target_square;
  return figures;
}

}  // namespace penstock::worker
