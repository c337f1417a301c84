#include "planner/core/contract/micro_batch_shares.h"

#include <bit>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "planner/core/model/micro_batch.h"

namespace penstock::core {
namespace {

absl::Span<const uint32_t> SamplesOf(const v1::MicroBatch& micro_batch) {
  return {micro_batch.samples().data(), static_cast<size_t>(micro_batch.samples_size())};
}

// With one context rank.
TokenSums ComputedSums(const v1::MicroBatch& micro_batch, const Batch& batch,
                       const AttentionWindows& windows) {
  const TokenSums packed = SumsOf(SamplesOf(micro_batch), batch.samples, Layout::kPacked);
  if (micro_batch.layout() == v1::LAYOUT_PACKED) return packed;
  return PaddedSums(static_cast<int32_t>(micro_batch.rows()),
                    static_cast<int32_t>(micro_batch.source_length()),
                    static_cast<int32_t>(micro_batch.target_length()), packed.loss,
                    windows.LessSquare(micro_batch.target_length()));
}

// As the plan has them, whoever made it.
std::vector<Row> ComputedRows(const v1::MicroBatch& micro_batch, const Batch& batch,
                              const AttentionWindows& windows) {
  const absl::Span<const uint32_t> samples = SamplesOf(micro_batch);
  std::vector<Row> rows;
  if (micro_batch.layout() == v1::LAYOUT_CONCATENATED) {
    const auto& ends = micro_batch.row_samples();
    for (int row = 0; row + 1 < ends.size(); ++row)
      rows.push_back({micro_batch.target_length(), windows.LessSquare(micro_batch.target_length()),
                      samples.subspan(ends[row], ends[row + 1] - ends[row])});
    return rows;
  }
  const bool packed = micro_batch.layout() == v1::LAYOUT_PACKED;
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t length = packed ? batch.samples[samples[i]].target : micro_batch.target_length();
    rows.push_back({length, windows.LessSquare(length), samples.subspan(i, 1)});
  }
  return rows;
}

absl::StatusOr<std::vector<Span>> SpansOf(const v1::MicroBatch& micro_batch, size_t rows, int contexts) {
  if (contexts == 1) return std::vector<Span>(rows);
  const absl::Status wrong = absl::InvalidArgumentError(
      "plan.replicas: a micro-batch has not one span for each row, inside of its group");
  if (static_cast<size_t>(micro_batch.span_ranks_size()) != rows ||
      static_cast<size_t>(micro_batch.span_first_size()) != rows)
    return wrong;
  std::vector<Span> spans;
  for (int row = 0; row < micro_batch.span_ranks_size(); ++row) {
    const uint64_t first = micro_batch.span_first(row), ranks = micro_batch.span_ranks(row);
    // A power of two, aligned: what costs know the links of.
    if (!std::has_single_bit(ranks) || first % ranks != 0 || first + ranks > static_cast<uint64_t>(contexts))
      return wrong;
    spans.push_back({.first = static_cast<int32_t>(first), .ranks = static_cast<int32_t>(ranks)});
  }
  return spans;
}

// A row, and a chunk of it.
using RowAndChunk = std::pair<size_t, int32_t>;

// Where each part begins, and the last one's end.
std::vector<RowAndChunk> PartBegins(const v1::MicroBatch& micro_batch) {
  std::vector<RowAndChunk> begins;
  for (int part = 0; part < micro_batch.part_rows_size(); ++part)
    begins.emplace_back(micro_batch.part_rows(part), part < micro_batch.part_chunks_size()
                                                         ? static_cast<int32_t>(micro_batch.part_chunks(part))
                                                         : 0);
  return begins;
}

// Ascending, from the first row to behind the last; inside of rows that are divided.
bool AreSound(absl::Span<const RowAndChunk> begins, absl::Span<const Span> spans) {
  if (begins.size() < 2 || begins.front() != RowAndChunk() || begins.back() != RowAndChunk(spans.size(), 0))
    return false;
  for (size_t part = 0; part + 1 < begins.size(); ++part) {
    const auto& [row, chunk] = begins[part];
    if (begins[part] >= begins[part + 1] || row >= spans.size()) return false;
    if (chunk != 0 && (chunk < 0 || spans[row].ranks == 1 || chunk >= 2 * spans[row].ranks)) return false;
  }
  return true;
}

// Rows of a micro-batch, or the samples in them, and where they are.
struct PlacedRows {
  std::vector<Row> rows;
  std::vector<Span> spans;
  // The row of the micro-batch that each of them is, or is in.
  std::vector<size_t> row_of;
  // In rows of the micro-batch.
  std::vector<RowAndChunk> part_begins;
};

absl::StatusOr<PlacedRows> PlaceComputed(const v1::MicroBatch& micro_batch, const Batch& batch, int contexts,
                                         const AttentionWindows& windows) {
  PlacedRows computed = {.rows = ComputedRows(micro_batch, batch, windows),
                         .spans = {},
                         .row_of = {},
                         .part_begins = PartBegins(micro_batch)};
  PENSTOCK_ASSIGN_OR_RETURN(computed.spans, SpansOf(micro_batch, computed.rows.size(), contexts));
  computed.row_of.resize(computed.rows.size());
  std::iota(computed.row_of.begin(), computed.row_of.end(), size_t{0});
  if (computed.part_begins.empty() || AreSound(computed.part_begins, computed.spans)) return computed;
  return absl::InvalidArgumentError("plan.replicas: the parts of a micro-batch do not hold each row once");
}

// The rows that a part has some of.
PlacedRows RowsOfPart(const PlacedRows& placed, size_t part, std::vector<ChunkRange>* chunks) {
  const auto& [first, begin] = placed.part_begins[part];
  const auto& [last, end] = placed.part_begins[part + 1];
  PlacedRows rows;
  chunks->clear();
  for (size_t i = 0; i < placed.rows.size(); ++i) {
    const size_t row = placed.row_of[i];
    if (row < first || row > last || (row == last && end == 0)) continue;
    rows.rows.push_back(placed.rows[i]);
    rows.spans.push_back(placed.spans[i]);
    chunks->push_back({.begin = row == first ? begin : 0, .end = row == last ? end : 0});
  }
  return rows;
}

void AddCutTokens(const PlacedRows& placed, std::vector<Share>* whole) {
  for (size_t i = 0; i < placed.rows.size(); ++i) {
    const bool cut = absl::c_any_of(placed.part_begins, [&](const RowAndChunk& begin) {
      return begin.first == placed.row_of[i] && begin.second > 0;
    });
    if (!cut) continue;
    const Span& span = placed.spans[i];
    for (int context = span.first; context < span.first + span.ranks; ++context)
      (*whole)[context].cut_tokens += placed.rows[i].length;
  }
}

SharesInParts SharesOfPlaced(const PlacedRows& placed, const Batch& batch, const Nodes& nodes, int contexts) {
  SharesInParts shares;
  SharesOf(placed.rows, batch.samples, placed.spans, nodes, contexts, &shares.whole);
  AddCutTokens(placed, &shares.whole);
  shares.parts.resize(contexts);
  std::vector<Share> of_part;
  std::vector<ChunkRange> chunks;
  for (size_t part = 0; part + 1 < placed.part_begins.size(); ++part) {
    const PlacedRows rows = RowsOfPart(placed, part, &chunks);
    SharesOf(rows.rows, batch.samples, rows.spans, nodes, contexts, &of_part, chunks);
    for (int context = 0; context < contexts; ++context) shares.parts[context].push_back(of_part[context]);
  }
  return shares;
}

// The micro-batch as it is laid out, and its parts row by row.
SharesInParts OfOneRank(const TokenSums& sums, std::vector<std::vector<Share>> parts = {{}}) {
  return {.whole = {WholeShare(sums)}, .parts = std::move(parts)};
}

}  // namespace

absl::StatusOr<SharesInParts> ComputedShares(const v1::MicroBatch& micro_batch, const Batch& batch,
                                             const Nodes& nodes, int contexts,
                                             const AttentionWindows& windows) {
  const auto sums = [&] { return ComputedSums(micro_batch, batch, windows); };
  if (contexts == 1 && micro_batch.part_rows().empty()) return OfOneRank(sums());
  PENSTOCK_ASSIGN_OR_RETURN(const PlacedRows computed, PlaceComputed(micro_batch, batch, contexts, windows));
  SharesInParts shares = SharesOfPlaced(computed, batch, nodes, contexts);
  if (contexts == 1) shares = OfOneRank(sums(), std::move(shares.parts));
  shares.whole_backward = micro_batch.whole_backward();
  return shares;
}

absl::StatusOr<SharesInParts> RealShares(const v1::MicroBatch& micro_batch, const Batch& batch,
                                         const Nodes& nodes, int contexts, const AttentionWindows& windows) {
  const absl::Span<const uint32_t> samples = SamplesOf(micro_batch);
  const auto sums = [&] { return SumsOf(samples, batch.samples, Layout::kPacked); };
  if (contexts == 1 && micro_batch.part_rows().empty()) return OfOneRank(sums());
  PENSTOCK_ASSIGN_OR_RETURN(const PlacedRows computed, PlaceComputed(micro_batch, batch, contexts, windows));
  PlacedRows real = {.rows = RowsOf(samples, batch.samples, Layout::kPacked, {}),
                     .spans = {},
                     .row_of = {},
                     .part_begins = computed.part_begins};
  for (size_t row = 0; row < computed.rows.size(); ++row) {
    real.spans.insert(real.spans.end(), computed.rows[row].samples.size(), computed.spans[row]);
    real.row_of.insert(real.row_of.end(), computed.rows[row].samples.size(), row);
  }
  SharesInParts shares = SharesOfPlaced(real, batch, nodes, contexts);
  if (contexts == 1) shares = OfOneRank(sums(), std::move(shares.parts));
  shares.whole_backward = micro_batch.whole_backward();
  return shares;
}

}  // namespace penstock::core
