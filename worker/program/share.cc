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

std::vector<RowChunk> ChunksOfRow(size_t row, int64_t length, const Span& span, int context) {
  if (!Has(span, context)) return {};
  if (span.ranks == 1) return {{row, 0, length}};
  const int64_t chunks = 2 * int64_t{span.ranks};
  const int64_t place = PlaceIn(span, context);
  return {Chunk(row, length, chunks, place), Chunk(row, length, chunks, chunks - 1 - place)};
}

std::vector<RowChunk> ChunksOf(const MicroBatch& shape, Side side, int context) {
  const std::vector<int64_t> lengths = RowLengths(shape, side);
  std::vector<RowChunk> chunks;
  for (size_t row = 0; row < lengths.size(); ++row) {
    for (const RowChunk& chunk : ChunksOfRow(row, lengths[row], SpanOf(shape, row), context))
      chunks.push_back(chunk);
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
    if (!Has(span, to)) continue;
    std::vector<RowChunk> chunks = ChunksOfRow(row, lengths[row], span, from);
    // The second chunk of an earlier rank comes behind all queries of a later one.
    if (from < to && chunks.size() == 2) chunks.pop_back();
    sent.insert(sent.end(), chunks.begin(), chunks.end());
  }
  return sent;
}

}  // namespace penstock::worker
