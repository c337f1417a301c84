#include "planner/cli/span_counts.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace penstock::cli {
namespace {

// Samples of row `row`: one, but for rows of samples end to end.
uint64_t SamplesOfRow(const v1::MicroBatch& micro_batch, int row) {
  if (row + 1 >= micro_batch.row_samples_size()) return 1;
  const uint32_t begin = micro_batch.row_samples(row), end = micro_batch.row_samples(row + 1);
  return end > begin ? end - begin : 0;
}

}  // namespace

std::vector<SpanCount> CountSpans(const v1::Plan& plan) {
  std::map<uint32_t, uint64_t> samples;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
      for (int row = 0; row < micro_batch.span_ranks_size(); ++row)
        samples[micro_batch.span_ranks(row)] += SamplesOfRow(micro_batch, row);
    }
  }
  std::vector<SpanCount> spans;
  for (const auto& [ranks, count] : samples) spans.push_back({.ranks = ranks, .samples = count});
  return spans;
}

std::string SpanText(const std::vector<SpanCount>& spans) {
  return absl::StrJoin(spans, ", ", [](std::string* text, const SpanCount& span) {
    absl::StrAppend(text, span.samples, " x ", span.ranks);
  });
}

}  // namespace penstock::cli
