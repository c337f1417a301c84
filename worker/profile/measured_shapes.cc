#include "worker/profile/measured_shapes.h"

#include <algorithm>

namespace penstock::worker {
namespace {

constexpr int64_t kShortest = 16;
constexpr int64_t kLengthFactor = 4;

std::vector<int64_t> Lengths(int64_t max_sequence_length) {
  std::vector<int64_t> lengths;
  for (int64_t length = kShortest; length < max_sequence_length; length *= kLengthFactor)
    lengths.push_back(length);
  lengths.push_back(max_sequence_length);
  return lengths;
}

void AddSample(MicroBatch& shape, int64_t length) {
  shape.sample_ids.push_back(shape.sample_ids.size());
  shape.input_tokens.push_back(0);
  shape.target_tokens.push_back(static_cast<uint32_t>(length));
}

}  // namespace

MicroBatch PaddedShape(int64_t rows, int64_t length) {
  MicroBatch shape;
  shape.layout = Layout::kPadded;
  shape.rows = rows;
  shape.target_length = length;
  shape.computed_tokens = rows * length;
  for (int64_t row = 0; row < rows; ++row) AddSample(shape, length);
  return shape;
}

MicroBatch PackedShape(const std::vector<int64_t>& lengths) {
  MicroBatch shape;
  shape.layout = Layout::kPacked;
  shape.target_cu_seqlens = {0};
  for (const int64_t length : lengths) {
    AddSample(shape, length);
    shape.target_cu_seqlens.push_back(shape.target_cu_seqlens.back() + static_cast<int32_t>(length));
  }
  shape.computed_tokens = shape.target_cu_seqlens.back();
  return shape;
}

double SquaresOf(const MicroBatch& shape) {
  double squares = 0;
  for (const uint32_t tokens : shape.target_tokens) {
    const double length = tokens;
    squares += length * length;
  }
  return squares;
}

std::vector<MicroBatch> MeasuredShapes(int64_t max_sequence_length, int64_t most_tokens) {
  std::vector<MicroBatch> shapes;
  for (const int64_t length : Lengths(max_sequence_length)) {
    for (const int64_t rows : {1, 4, 16}) shapes.push_back(PaddedShape(rows, length));
    const int64_t half = std::max<int64_t>(1, length / 2);
    const int64_t quarter = std::max<int64_t>(1, length / 4);
    shapes.push_back(PackedShape({quarter, quarter, half, length}));
  }
  std::erase_if(shapes, [&](const MicroBatch& shape) { return shape.computed_tokens > most_tokens; });
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const auto& a, const auto& b) { return a.computed_tokens < b.computed_tokens; });
  return shapes;
}

}  // namespace penstock::worker
