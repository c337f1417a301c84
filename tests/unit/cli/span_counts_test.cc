#include "planner/cli/span_counts.h"

#include <gtest/gtest.h>

namespace penstock::cli {
namespace {

TEST(SpanCounts, AllSamplesOfARowCountWithItsSpan) {
  v1::Plan plan;
  v1::MicroBatch& rows = *plan.add_replicas()->add_micro_batches();
  for (const uint32_t end : {0, 3, 5}) rows.add_row_samples(end);
  for (const uint32_t ranks : {1, 4}) rows.add_span_ranks(ranks);
  v1::MicroBatch& samples = *plan.add_replicas()->add_micro_batches();
  for (const uint32_t ranks : {4, 32, 32}) samples.add_span_ranks(ranks);
  EXPECT_EQ(SpanText(CountSpans(plan)), "3 x 1, 3 x 4, 2 x 32");
}

}  // namespace
}  // namespace penstock::cli
