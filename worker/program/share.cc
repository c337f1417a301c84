#include "worker/program/share.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

// Place of a context rank in a span; below 0 or not below span.ranks where it has no part of the row.
int64_t PlaceIn(const Span& span, int context) { return int64_t{context} - int64_t{span.first}; }

bool Has(const Span& span, int context) {
  const int64_t place = PlaceIn(span, context);
  return place >= 0 && place < int64_t{span.ranks};
}

Span SpanOf(const MicroBatch& shape, size_t row) { return shape.spans.empty() ? Span() : shape.spans[row]; }

// A row on one context rank is one chunk.
int64_t ChunksOfSpan(const Span& span) { return span.ranks == 1 ? 1 : 2 * int64_t{span.ranks}; }

// The chunks of a row that lie on a context rank, ascending.
std::vector<int64_t> IndicesOn(const Span& span, int context) {
  if (!Has(span, context)) return {};
  if (span.ranks == 1) return {0};
  const int64_t place = PlaceIn(span, context);
  return {place, ChunksOfSpan(span) - 1 - place};
}

// Chunks begin, ..., end - 1 of a row.
struct ChunkRange {
  int64_t begin = 0;
  int64_t end = 0;

  bool Has(int64_t index) const { return index >= begin && index < end; }
};

// Those of a row of the shape: all, but at the ends of a part.
ChunkRange ChunksIn(const MicroBatch& shape, size_t row, size_t rows, const Span& span) {
  const bool ends = row + 1 == rows && shape.end_chunk > 0;
  return {row == 0 ? int64_t{shape.first_chunk} : 0, ends ? int64_t{shape.end_chunk} : ChunksOfSpan(span)};
}

RowChunk Chunk(size_t row, int64_t length, int64_t chunks, int64_t index) {
  const int64_t begin = index * length / chunks;
  return {row, begin, (index + 1) * length / chunks - begin};
}

absl::Status SpanError(size_t row, const Span& span, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("span of row ", row, ": ", span.ranks,
                                                 " context ranks from ", span.first, " on, ", problem));
}

absl::Status CheckSpan(size_t row, const Span& span, int64_t length, int contexts) {
  if (!std::has_single_bit(span.ranks) || span.first % span.ranks != 0 ||
      int64_t{span.first} + span.ranks > contexts) {
    return SpanError(row, span, absl::StrCat("expected an aligned run of 1, 2, 4, ... of ", contexts));
  }
  if (span.ranks > 1 && length < 2 * int64_t{span.ranks}) {
    return SpanError(row, span, absl::StrCat("but the row has ", length, " tokens"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int64_t> RowLengths(const MicroBatch& shape, Side side) {
  const bool source = side == Side::kSource;
  if (shape.layout != Layout::kPacked) {
    return std::vector<int64_t>(static_cast<size_t>(shape.rows),
                                source ? shape.source_length : shape.target_length);
  }
  const std::vector<int32_t>& ends = source ? shape.source_cu_seqlens : shape.target_cu_seqlens;
  std::vector<int64_t> lengths;
  for (size_t i = 1; i < ends.size(); ++i) lengths.push_back(ends[i] - ends[i - 1]);
  return lengths;
}

absl::Status CheckSpans(const MicroBatch& shape, Side side, int contexts) {
  if (contexts == 1 && shape.spans.empty()) return absl::OkStatus();
  const std::vector<int64_t> lengths = RowLengths(shape, side);
  if (shape.spans.size() != lengths.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("spans: ", shape.spans.size(), " for ", lengths.size(), " rows"));
  }
  for (size_t row = 0; row < lengths.size(); ++row) {
    if (absl::Status status = CheckSpan(row, shape.spans[row], lengths[row], contexts); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

std::vector<RowChunk> ChunksOf(const MicroBatch& shape, Side side, int context) {
  const std::vector<int64_t> lengths = RowLengths(shape, side);
  std::vector<RowChunk> chunks;
  for (size_t row = 0; row < lengths.size(); ++row) {
    const Span span = SpanOf(shape, row);
    const ChunkRange in_shape = ChunksIn(shape, row, lengths.size(), span);
    for (const int64_t index : IndicesOn(span, context)) {
      if (in_shape.Has(index)) chunks.push_back(Chunk(row, lengths[row], ChunksOfSpan(span), index));
    }
  }
  return chunks;
}

int64_t TokensOn(const MicroBatch& shape, Side side, int context) {
  int64_t tokens = 0;
  for (const RowChunk& chunk : ChunksOf(shape, side, context)) tokens += chunk.length;
  return tokens;
}

std::vector<TokenRun> RunsOf(const MicroBatch& shape, Side side, int context) {
  std::vector<int64_t> begins = {0};
  for (const int64_t length : RowLengths(shape, side)) begins.push_back(begins.back() + length);
  std::vector<TokenRun> runs;
  for (const RowChunk& chunk : ChunksOf(shape, side, context)) {
    const int64_t begin = begins[chunk.row] + chunk.first;
    if (!runs.empty() && runs.back().begin + runs.back().length == begin) {
      runs.back().length += chunk.length;
    } else {
      runs.push_back({begin, chunk.length});
    }
  }
  return runs;
}

std::vector<bool> SamplesOn(const MicroBatch& shape, int context) {
  std::vector<bool> samples(shape.sample_ids.size());
  const bool concatenated = shape.layout == Layout::kConcatenated;
  const size_t rows = concatenated ? static_cast<size_t>(shape.rows) : samples.size();
  for (size_t row = 0; row < rows; ++row) {
    const size_t begin = concatenated ? static_cast<size_t>(shape.row_samples[row]) : row;
    const size_t end = concatenated ? static_cast<size_t>(shape.row_samples[row + 1]) : row + 1;
    for (size_t sample = begin; sample < end; ++sample) samples[sample] = Has(SpanOf(shape, row), context);
  }
  return samples;
}

bool AnyRowIsDivided(const MicroBatch& shape) {
  return std::ranges::any_of(shape.spans, [](const Span& span) { return span.ranks > 1; });
}

std::vector<RowChunk> ChunksSent(const MicroBatch& shape, int from, int to) {
  if (from == to || !AnyRowIsDivided(shape)) return {};
  const std::vector<int64_t> lengths = RowLengths(shape, Side::kTarget);
  std::vector<RowChunk> sent;
  for (size_t row = 0; row < lengths.size(); ++row) {
    const Span span = SpanOf(shape, row);
    const ChunkRange in_shape = ChunksIn(shape, row, lengths.size(), span);
    const std::vector<int64_t> queries = IndicesOn(span, to);
    for (const int64_t index : IndicesOn(span, from)) {
      const auto first = std::ranges::upper_bound(queries, index);
      if (first != queries.end() && in_shape.Has(*first))
        sent.push_back(Chunk(row, lengths[row], ChunksOfSpan(span), index));
    }
  }
  return sent;
}

}  // namespace penstock::worker
