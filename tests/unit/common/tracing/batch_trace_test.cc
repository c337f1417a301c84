#include "common/tracing/batch_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/escaping.h"

namespace penstock {
namespace {

TEST(BatchTraceTest, IdsFollowFromJobAndIteration) {
  const BatchTrace trace = TraceOfBatch("mix", 12);
  // Of SHA-256("penstock.batch_trace.1\nmix\n12"): programs of two versions have to agree.
  EXPECT_EQ(absl::BytesToHexString(trace.trace_id), "18a591b30dfe95ed0965ff8942c098ad");
  EXPECT_EQ(absl::BytesToHexString(trace.root_id), "32137d0f677cd43b");
}

TEST(BatchTraceTest, NoTwoBatchesShareOne) {
  std::set<std::string> ids;
  for (const char* job : {"a", "a1", "b"}) {
    for (uint64_t iteration = 0; iteration < 20; ++iteration) {
      ids.insert(TraceOfBatch(job, iteration).trace_id);
      ids.insert(TraceOfBatch(job, iteration).root_id);
    }
  }
  EXPECT_EQ(ids.size(), 3 * 20 * 2);
}

TEST(BatchTraceTest, PartsHaveIdsOfTheirOwnBelowTheRoot) {
  const BatchTrace trace = TraceOfBatch("mix", 0);
  const TraceSpan root = RootSpan(trace, "batch");
  const TraceSpan first = ChildSpan(trace, "plan");
  const TraceSpan second = ChildSpan(trace, "plan");
  EXPECT_EQ(root.parent_id, "");
  EXPECT_EQ(root.span_id, trace.root_id);
  for (const TraceSpan* span : {&first, &second}) {
    EXPECT_EQ(span->trace_id, root.trace_id);
    EXPECT_EQ(span->parent_id, root.span_id);
    EXPECT_EQ(span->span_id.size(), 8);
  }
  EXPECT_NE(first.span_id, second.span_id);
}

}  // namespace
}  // namespace penstock
