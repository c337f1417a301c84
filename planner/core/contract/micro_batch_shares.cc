#include "planner/core/contract/micro_batch_shares.h"

#include <bit>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "planner/core/model/micro_batch.h"

namespace penstock::core {
namespace {

Layout LayoutOf(const v1::MicroBatch& micro_batch) {
  if (micro_batch.layout() == v1::LAYOUT_PADDED) return Layout::kPadded;
  return micro_batch.layout() == v1::LAYOUT_CONCATENATED ? Layout::kConcatenated : Layout::kPacked;
}

// With one context rank.
MicroBatchShares WholeShares(const v1::MicroBatch& micro_batch, absl::Span<const uint32_t> samples,
                             const Batch& batch, const AttentionWindows& windows) {
  const TokenSums packed = SumsOf(samples, batch.samples, Layout::kPacked);
  const TokenSums computed = micro_batch.layout() == v1::LAYOUT_PACKED
                                 ? packed
                                 : PaddedSums(static_cast<int32_t>(micro_batch.rows()),
                                              static_cast<int32_t>(micro_batch.source_length()),
                                              static_cast<int32_t>(micro_batch.target_length()), packed.loss,
                                              windows.LessSquare(micro_batch.target_length()));
  return {.computed = {WholeShare(computed)},
          .real = {WholeShare(packed)},
          .computed_parts = {{}},
          .real_parts = {{}}};
}

absl::StatusOr<std::vector<Span>> SpansOf(const v1::MicroBatch& micro_batch, size_t rows, int contexts) {
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

// Ascending, from 0 to the number of rows.
absl::Status CheckParts(const v1::MicroBatch& micro_batch, size_t rows) {
  const auto& begins = micro_batch.part_rows();
  bool sound = begins.empty() || (begins.size() > 1 && begins[0] == 0 && begins[begins.size() - 1] == rows);
  for (int part = 0; sound && part + 1 < begins.size(); ++part) sound = begins[part] < begins[part + 1];
  if (sound) return absl::OkStatus();
  return absl::InvalidArgumentError("plan.replicas: the parts of a micro-batch do not hold each row once");
}

// A row of a micro-batch, or a sample in it, and where it is.
struct PlacedRows {
  std::vector<Row> rows;
  std::vector<Span> spans;
  // Where each part begins, and the last one's end.
  std::vector<size_t> part_begins;
};

void AddShares(const PlacedRows& placed, const Batch& batch, const Nodes& nodes, int contexts,
               std::vector<Share>* shares, std::vector<std::vector<Share>>* parts) {
  SharesOf(placed.rows, batch.samples, placed.spans, nodes, contexts, shares);
  parts->resize(contexts);
  std::vector<Share> of_part;
  for (size_t part = 0; part + 1 < placed.part_begins.size(); ++part) {
    const size_t begin = placed.part_begins[part], size = placed.part_begins[part + 1] - begin;
    SharesOf(absl::MakeSpan(placed.rows).subspan(begin, size), batch.samples,
             absl::MakeSpan(placed.spans).subspan(begin, size), nodes, contexts, &of_part);
    for (int context = 0; context < contexts; ++context) (*parts)[context].push_back(of_part[context]);
  }
}

}  // namespace

absl::StatusOr<MicroBatchShares> SharesOfMicroBatch(const v1::MicroBatch& micro_batch, const Batch& batch,
                                                    const Nodes& nodes, int contexts,
                                                    const AttentionWindows& windows) {
  const absl::Span<const uint32_t> samples(micro_batch.samples().data(), micro_batch.samples_size());
  if (contexts == 1) return WholeShares(micro_batch, samples, batch, windows);
  const RowLengths length = {.source = static_cast<int32_t>(micro_batch.source_length()),
                             .target = static_cast<int32_t>(micro_batch.target_length()),
                             .less_square = windows.LessSquare(micro_batch.target_length())};
  PlacedRows computed = {.rows = RowsOf(samples, batch.samples, LayoutOf(micro_batch), length),
                         .spans = {},
                         .part_begins = {micro_batch.part_rows().begin(), micro_batch.part_rows().end()}};
  PENSTOCK_ASSIGN_OR_RETURN(computed.spans, SpansOf(micro_batch, computed.rows.size(), contexts));
  PENSTOCK_RETURN_IF_ERROR(CheckParts(micro_batch, computed.rows.size()));
  PlacedRows real = {
      .rows = RowsOf(samples, batch.samples, Layout::kPacked, {}), .spans = {}, .part_begins = {}};
  for (size_t row = 0; row < computed.rows.size(); ++row) {
    if (absl::c_linear_search(computed.part_begins, row)) real.part_begins.push_back(real.spans.size());
    real.spans.insert(real.spans.end(), computed.rows[row].samples.size(), computed.spans[row]);
  }
  if (!real.part_begins.empty()) real.part_begins.push_back(real.spans.size());
  MicroBatchShares shares;
  AddShares(computed, batch, nodes, contexts, &shares.computed, &shares.computed_parts);
  AddShares(real, batch, nodes, contexts, &shares.real, &shares.real_parts);
  return shares;
}

}  // namespace penstock::core
