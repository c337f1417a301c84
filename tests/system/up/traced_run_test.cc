// `penstock up --otlp-endpoint`: the spans of planner and workers as a collector gets them.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/net/listening.h"
#include "common/tracing/batch_trace.h"
#include "tests/support/trace_collector.h"
#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kIterations = 4;

class TracedRunTest : public UpTest {
 protected:
  std::vector<std::string> TracedTo(const std::string& endpoint, uint64_t iterations = kIterations,
                                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"--iterations", absl::StrCat(iterations), "--json", "--job-id",
                                          "traced",       "--otlp-endpoint",        endpoint};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return UpArguments(arguments);
  }
};

std::vector<CollectedSpan> Named(const std::vector<CollectedSpan>& spans, const std::string& name) {
  std::vector<CollectedSpan> named = spans;
  std::erase_if(named, [&](const CollectedSpan& one) { return one.span.name() != name; });
  return named;
}

std::multiset<std::string> RanksOf(const std::vector<CollectedSpan>& spans) {
  std::multiset<std::string> ranks;
  for (const CollectedSpan& one : spans) ranks.insert(one.Attribute("penstock.rank"));
  return ranks;
}

TEST_F(TracedRunTest, PlannerAndAllWorkersShareTheTraceOfABatch) {
  const TraceCollector collector;
  PenstockRun up(folder_, "up", TracedTo(collector.address()));
  // All processes have ended by then, and sent what they had.
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  for (uint64_t iteration = 0; iteration < kIterations; ++iteration) {
    const BatchTrace trace = TraceOfBatch("traced", iteration);
    const std::vector<CollectedSpan> spans = collector.SpansOfTrace(trace.trace_id);
    EXPECT_THAT(NamesOf(spans),
                ElementsAre("batch", "deliver", "deliver", "deliver", "deliver", "iteration", "iteration",
                            "iteration", "iteration", "plan", "queue", "submit", "verify"));
    for (const CollectedSpan& one : spans) {
      const bool of_worker = one.span.name() == "iteration";
      EXPECT_EQ(one.service, of_worker ? "penstock-worker" : "penstock-planner");
      EXPECT_EQ(one.span.parent_span_id(), one.span.name() == "batch" ? "" : trace.root_id);
      EXPECT_EQ(one.Attribute("penstock.iteration"), absl::StrCat(iteration));
      EXPECT_FALSE(one.span.has_status());
    }
    const std::multiset<std::string> all = {"0", "1", "2", "3"};
    EXPECT_EQ(RanksOf(Named(spans, "deliver")), all);
    const std::vector<CollectedSpan> ran = Named(spans, "iteration");
    EXPECT_EQ(RanksOf(ran), all);
    const CollectedSpan root = Named(spans, "batch").front();
    for (const CollectedSpan& one : ran) {
      EXPECT_LE(root.span.start_time_unix_nano(), one.span.start_time_unix_nano());
      EXPECT_LE(one.span.end_time_unix_nano(), root.span.end_time_unix_nano());
      EXPECT_NE(one.Attribute("penstock.forward_ns"), "0");
    }
  }
}

TEST_F(TracedRunTest, WhatALostRankCutsOffSaysWhyAndIsPartOfTheSameTraceWhenItIsDoneAgain) {
  constexpr uint64_t kMany = 60;
  const TraceCollector collector;
  PenstockRun up(folder_, "up",
                 TracedTo(collector.address(), kMany, {"--checkpoint-every", "50", "--no-rescue"}));
  up.WaitForText("iteration 13/59");
  ASSERT_NO_FATAL_FAILURE(KillOne(RunDir(), "--rank=1"));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  std::multiset<std::string> errors;
  bool again = false;
  for (uint64_t iteration = 0; iteration < kMany; ++iteration) {
    const std::vector<CollectedSpan> spans =
        collector.SpansOfTrace(TraceOfBatch("traced", iteration).trace_id);
    EXPECT_THAT(Named(spans, "batch"), testing::SizeIs(1)) << iteration;
    std::vector<CollectedSpan> ran = Named(spans, "iteration");
    for (const CollectedSpan& one : ran) {
      if (one.span.has_status()) errors.insert(one.span.status().message());
    }
    std::erase_if(ran, [](const CollectedSpan& one) { return one.span.has_status(); });
    again = again || RanksOf(ran).count("0") > 1;
  }
  EXPECT_FALSE(errors.empty());
  EXPECT_FALSE(errors.contains(""));
  EXPECT_TRUE(again) << "no iteration was done again";
}

TEST_F(TracedRunTest, ACollectorThatIsNotThereChangesNothing) {
  PenstockRun up(folder_, "up", TracedTo(WithUnusedPort("127.0.0.1:0").value()));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_EQ(nlohmann::json::parse(up.output())["iterations"], kIterations);
}

TEST_F(TracedRunTest, WhatIsNoCollectorIsNamed) {
  PenstockRun up(folder_, "up", TracedTo("http://127.0.0.1:4317"));
  EXPECT_EQ(up.Wait(), 2);
  EXPECT_THAT(up.errors(), HasSubstr("--otlp-endpoint: 'http://127.0.0.1:4317': use HOST:PORT"));
}

}  // namespace
}  // namespace penstock
