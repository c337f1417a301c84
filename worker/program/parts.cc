#include "worker/program/parts.h"

#include <algorithm>
#include <string>
#include <utility>
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

absl::Status ChunksError(const MicroBatch& shape, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("part_chunks is ", absl::StrJoin(shape.part_chunks, ", "),
                                                 " of part_rows ", absl::StrJoin(shape.part_rows, ", "), ": ",
                                                 problem));
}

uint32_t ChunkAt(const MicroBatch& shape, size_t part) {
  return shape.part_chunks.empty() ? 0 : shape.part_chunks[part];
}

// Where a part begins, or the last one ends.
std::pair<uint32_t, uint32_t> BeginOf(const MicroBatch& shape, size_t part) {
  return {shape.part_rows[part], ChunkAt(shape, part)};
}

absl::Status CheckCut(const MicroBatch& shape, size_t part) {
  const uint32_t chunk = shape.part_chunks[part], row = shape.part_rows[part];
  if (chunk == 0) return absl::OkStatus();
  if (row >= shape.spans.size())
    return ChunksError(shape, absl::StrCat("there is no row ", row, " that context ranks could divide"));
  const uint32_t ranks = shape.spans[row].ranks;
  if (ranks > 1 && chunk < 2 * ranks) return absl::OkStatus();
  return ChunksError(shape, ranks == 1 ? absl::StrCat("row ", row, " lies on one context rank")
                                       : absl::StrCat("row ", row, " has the chunks 0 to ", 2 * ranks - 1));
}

// Of parts that are in order but for that.
absl::Status CheckChunks(const MicroBatch& shape, const ModelConfig& config) {
  if (shape.part_chunks.empty()) return absl::OkStatus();
  if (shape.part_chunks.size() != shape.part_rows.size())
    return ChunksError(shape, "expected one value for each of part_rows");
  if (!shape.whole_backward) return ChunksError(shape, "rows are cut where whole_backward is set alone");
  if (config.expert_capacity_factor > 0)
    return ChunksError(shape, "no row is cut where experts have a capacity, which all of a sample decides");
  for (size_t part = 0; part < shape.part_rows.size(); ++part)
    if (absl::Status status = CheckCut(shape, part); !status.ok()) return status;
  return absl::OkStatus();
}

// The first sample of a row.
size_t SampleAt(const MicroBatch& shape, size_t row) {
  return shape.layout == Layout::kConcatenated ? static_cast<size_t>(shape.row_samples[row]) : row;
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

absl::Status CheckParts(const MicroBatch& shape, const ModelConfig& config, const GroupPlace& place) {
  const std::vector<uint32_t>& ends = shape.part_rows;
  if (shape.whole_backward && (ends.empty() || place.tensors > 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "whole_backward is set, but ", ends.empty()
                                           ? std::string("part_rows is empty")
                                           : absl::StrCat("tensor ranks divide the tokens of each part by ",
                                                          place.tensors, "; it needs a tensor degree of 1")));
  }
  if (ends.empty())
    return shape.part_chunks.empty() ? absl::OkStatus() : ChunksError(shape, "there are no parts");
  if (place.experts == 1) return PartsError(shape, "there are no parts where ranks do not divide experts");
  if (absl::Status status = CheckChunks(shape, config); !status.ok()) return status;
  const size_t rows = RowLengths(shape, Side::kTarget).size();
  bool ascends = ends.size() > 1 && BeginOf(shape, 0) == std::pair(0U, 0U) && ends.back() == rows;
  for (size_t part = 0; ascends && part + 1 < ends.size(); ++part)
    ascends = BeginOf(shape, part) < BeginOf(shape, part + 1);
  if (ascends) return absl::OkStatus();
  if (!shape.part_chunks.empty())
    return ChunksError(shape,
                       absl::StrCat("expected chunks of rows that rise from chunk 0 of row 0 to the end, ",
                                    "chunk 0 of row ", rows));
  return PartsError(shape,
                    absl::StrCat("expected values that rise from 0 to ", rows, ", the number of rows"));
}

bool BeginsInRow(const MicroBatch& shape, size_t part) { return ChunkAt(shape, part) > 0; }

size_t FirstSampleOf(const MicroBatch& shape, size_t part) { return SampleAt(shape, shape.part_rows[part]); }

MicroBatch PartOf(const MicroBatch& shape, size_t part) {
  const size_t first_row = shape.part_rows[part];
  const size_t end_row = shape.part_rows[part + 1] + (EndsInRow(shape, part) ? 1 : 0);
  const size_t begin = SampleAt(shape, first_row);
  const size_t end = SampleAt(shape, end_row);
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
                       .first_chunk = ChunkAt(shape, part),
                       .end_chunk = ChunkAt(shape, part + 1),
                       .batch_tokens = shape.batch_tokens,
                       .recompute = {}};
  if (shape.layout != Layout::kPacked) result.rows = static_cast<int64_t>(end_row - first_row);
  for (const int64_t length : RowLengths(result, Side::kTarget)) result.computed_tokens += length;
  return result;
}

}  // namespace penstock::worker
