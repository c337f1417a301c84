#include "worker/program/parts.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/program/share.h"

namespace penstock::worker {
namespace {

absl::Status PartsError(const MicroBatch& shape, const std::string& problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("part_rows is ", absl::StrJoin(shape.part_rows, ", "), ": ", problem));
}

// Some of the values, those of samples or rows from `begin` to `end` - 1. Empty where there are none.
template <typename Value>
std::vector<Value> Slice(const std::vector<Value>& values, size_t begin, size_t end) {
  if (values.empty()) return {};
  return {values.begin() + static_cast<ptrdiff_t>(begin), values.begin() + static_cast<ptrdiff_t>(end)};
}

// Of cumulative values, which then begin with 0 again.
std::vector<int32_t> CumulativeSlice(const std::vector<int32_t>& values, size_t begin, size_t end) {
  std::vector<int32_t> slice = Slice(values, begin, values.empty() ? end : end + 1);
  if (slice.empty()) return slice;
  const int32_t first = slice.front();
  for (int32_t& value : slice) value -= first;
  return slice;
}

}  // namespace

size_t PartsOf(const MicroBatch& shape) { return shape.part_rows.empty() ? 0 : shape.part_rows.size() - 1; }

absl::Status CheckParts(const MicroBatch& shape, const GroupPlace& place) {
  const std::vector<uint32_t>& ends = shape.part_rows;
  if (shape.whole_backward && (ends.empty() || place.tensors > 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "whole_backward is set, but ", ends.empty()
                                           ? std::string("part_rows is empty")
                                           : absl::StrCat("tensor ranks divide the tokens of each part by ",
                                                          place.tensors, "; it needs a tensor degree of 1")));
  }
  if (ends.empty()) return absl::OkStatus();
  if (place.experts == 1) return PartsError(shape, "there are no parts where ranks do not divide experts");
  const size_t rows = RowLengths(shape, Side::kTarget).size();
  const bool ascends = std::ranges::adjacent_find(ends, std::greater_equal()) == ends.end();
  if (ends.size() > 1 && ends.front() == 0 && ends.back() == rows && ascends) return absl::OkStatus();
  return PartsError(shape,
                    absl::StrCat("expected values that rise from 0 to ", rows, ", the number of rows"));
}

MicroBatch PartOf(const MicroBatch& shape, size_t part) {
  const size_t first_row = shape.part_rows[part];
  const size_t end_row = shape.part_rows[part + 1];
  const bool concatenated = shape.layout == Layout::kConcatenated;
  const auto sample_of = [&](size_t row) {
    return concatenated ? static_cast<size_t>(shape.row_samples[row]) : row;
  };
  const size_t begin = sample_of(first_row);
  const size_t end = sample_of(end_row);
  MicroBatch result = {.sample_ids = Slice(shape.sample_ids, begin, end),
                       .input_tokens = Slice(shape.input_tokens, begin, end),
                       .target_tokens = Slice(shape.target_tokens, begin, end),
                       .loss_weights = Slice(shape.loss_weights, begin, end),
                       .tasks = Slice(shape.tasks, begin, end),
                       .layout = shape.layout,
                       .source_length = shape.source_length,
                       .target_length = shape.target_length,
                       .source_cu_seqlens = CumulativeSlice(shape.source_cu_seqlens, begin, end),
                       .target_cu_seqlens = CumulativeSlice(shape.target_cu_seqlens, begin, end),
                       .row_samples = CumulativeSlice(shape.row_samples, first_row, end_row),
                       .spans = Slice(shape.spans, first_row, end_row),
                       .batch_tokens = shape.batch_tokens,
                       .recompute = {}};
  if (shape.layout != Layout::kPacked) result.rows = static_cast<int64_t>(end_row - first_row);
  for (const int64_t length : RowLengths(result, Side::kTarget)) result.computed_tokens += length;
  return result;
}

}  // namespace penstock::worker
