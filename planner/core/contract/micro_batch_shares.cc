#include "planner/core/contract/micro_batch_shares.h"

#include <bit>
#include <cstdint>

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
  return {.computed = {WholeShare(computed)}, .real = {WholeShare(packed)}};
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

}  // namespace

absl::StatusOr<MicroBatchShares> SharesOfMicroBatch(const v1::MicroBatch& micro_batch, const Batch& batch,
                                                    const Nodes& nodes, int contexts,
                                                    const AttentionWindows& windows) {
  const absl::Span<const uint32_t> samples(micro_batch.samples().data(), micro_batch.samples_size());
  if (contexts == 1) return WholeShares(micro_batch, samples, batch, windows);
  const RowLengths length = {.source = static_cast<int32_t>(micro_batch.source_length()),
                             .target = static_cast<int32_t>(micro_batch.target_length()),
                             .less_square = windows.LessSquare(micro_batch.target_length())};
  const std::vector<Row> rows = RowsOf(samples, batch.samples, LayoutOf(micro_batch), length);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Span> spans, SpansOf(micro_batch, rows.size(), contexts));
  std::vector<Span> span_of_sample;
  for (size_t row = 0; row < rows.size(); ++row)
    span_of_sample.insert(span_of_sample.end(), rows[row].samples.size(), spans[row]);
  MicroBatchShares shares;
  SharesOf(rows, batch.samples, spans, nodes, contexts, &shares.computed);
  SharesOf(RowsOf(samples, batch.samples, Layout::kPacked, {}), batch.samples, span_of_sample, nodes,
           contexts, &shares.real);
  return shares;
}

}  // namespace penstock::core
