// Rule 7: every token of every row is on one context rank. Spans say which; how a row is cut within its span
// leaves nothing out and nothing twice (execution.md, section 10).
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

void CheckMicroBatch(const PlanIndex& index, uint32_t contexts, const v1::MicroBatch& micro_batch,
                     const std::string& name, Report& report) {
  const auto fail = [&](const std::string& message) { report.Add(kTokens, absl::StrCat(name, message)); };
  const int firsts = micro_batch.span_first_size(), counts = micro_batch.span_ranks_size();
  if (contexts == 1) {
    if (firsts + counts > 0) fail("span_first or span_ranks is set, but there is one context rank");
    return;
  }
  const std::vector<RowSize> rows = RowsOf(index.batch(), index.plan(), micro_batch);
  const auto expected = static_cast<int>(rows.size());
  if (firsts != expected || counts != expected)
    return fail(absl::StrCat("span_first has ", firsts, " and span_ranks ", counts, " entries for ", expected,
                             " rows"));
  for (int row = 0; row < expected; ++row) {
    const Span span = {micro_batch.span_first(row), micro_batch.span_ranks(row)};
    if (IsSpanAllowed(span, rows[row].target, contexts)) continue;
    fail(absl::StrCat("row ", row, " of ", rows[row].target, " tokens has the span of ", span.ranks,
                      " context ranks from ", span.first, " on; a span is a power of two, begins at a ",
                      "multiple of it, lies within the ", contexts,
                      " context ranks, and divides a row of at least twice as many tokens"));
  }
}

}  // namespace

void CheckSpans(const PlanIndex& index, Report& report) {
  for (int replica = 0; replica < index.replicas() && !index.stopped(); ++replica)
    for (int m = 0; m < index.MicroBatches(replica); ++m)
      CheckMicroBatch(index, index.MeshOf(replica).contexts, index.plan().replicas(replica).micro_batches(m),
                      absl::StrCat("replica ", replica, ", micro-batch ", m, ": "), report);
}

}  // namespace penstock::core::verify
