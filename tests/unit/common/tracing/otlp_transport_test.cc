#include "common/tracing/otlp_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "common/net/listening.h"
#include "common/tracing/batch_trace.h"
#include "common/tracing/tracing.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trace_collector.h"

namespace penstock {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(20);

std::vector<TraceSpan> Two() {
  const BatchTrace trace = TraceOfBatch("mix", 3);
  return {RootSpan(trace, "batch"), ChildSpan(trace, "plan")};
}

TEST(OtlpTransportTest, SpansReachTheCollector) {
  const TraceCollector collector;
  const auto transport = ConnectToCollector(collector.address(), {{"service.name", "penstock-planner"}});
  const absl::StatusOr<size_t> refused = transport->Send(Two(), kPatience);
  ASSERT_THAT(refused, IsOk());
  EXPECT_EQ(*refused, 0);
  const std::vector<CollectedSpan> spans = collector.SpansOfTrace(TraceOfBatch("mix", 3).trace_id);
  EXPECT_THAT(NamesOf(spans), ElementsAre("batch", "plan"));
  EXPECT_EQ(spans.front().service, "penstock-planner");
}

TEST(OtlpTransportTest, SaysHowManySpansTheCollectorRefused) {
  TraceCollector collector;
  collector.Refuse(1);
  const auto transport = ConnectToCollector(collector.address(), {});
  EXPECT_EQ(transport->Send(Two(), kPatience).value_or(0), 1);
}

TEST(OtlpTransportTest, ACollectorThatIsNotThereIsNamedWhenItsTimeIsOver) {
  const std::string nobody = WithUnusedPort("127.0.0.1:0").value();
  const auto transport = ConnectToCollector(nobody, {});
  EXPECT_THAT(transport->Send(Two(), absl::Milliseconds(100)), Fails(StatusCode::kDeadlineExceeded, nobody));
}

TEST(OtlpTransportTest, WhatWaitsForACollectorEndsWhenItIsCancelled) {
  const auto transport = ConnectToCollector(WithUnusedPort("127.0.0.1:0").value(), {});
  std::thread canceller([&] { transport->Cancel(); });
  EXPECT_THAT(transport->Send(Two(), absl::Hours(1)), Fails(StatusCode::kCancelled, ""));
  canceller.join();
  EXPECT_THAT(transport->Send(Two(), absl::Hours(1)), Fails(StatusCode::kCancelled, ""));
}

TEST(OtlpTransportTest, AnAddressIsOfOneCollectorAndHasAPort) {
  for (const char* right : {"", "localhost:4317", "10.0.0.5:4317", "[::1]:4317", "collector.example:4317"})
    EXPECT_EQ(WhatIsWrongWithCollector(right), "") << right;
  for (const char* wrong :
       {"localhost", "localhost:", "localhost:0", "localhost:otlp", "http://localhost:4317",
        "https://localhost:4317/v1/traces", "a:4317,b:4317", "dns:///collectors:4317", "unix:/tmp/socket"}) {
    EXPECT_THAT(WhatIsWrongWithCollector(wrong), HasSubstr("use HOST:PORT of a collector")) << wrong;
  }
}

TEST(TracingTest, IsOffWithoutACollector) {
  EXPECT_EQ(StartTracing("", "penstock-planner"), nullptr);
  MetricsRegistry registry;
  AddTracingMetrics(&registry, nullptr);
  EXPECT_THAT(registry.Text(), Not(HasSubstr("penstock_spans")));
}

TEST(TracingTest, SaysWhoSendsAndCountsWhatWasTaken) {
  const TraceCollector collector;
  const auto tracing = StartTracing(collector.address(), "penstock-worker");
  MetricsRegistry registry;
  AddTracingMetrics(&registry, tracing.get());
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_spans_exported_total 0\n"));
  for (const TraceSpan& span : Two()) tracing->Add(span);
  tracing->Stop(kPatience);
  const std::vector<CollectedSpan> spans = collector.spans();
  ASSERT_THAT(NamesOf(spans), ElementsAre("batch", "plan"));
  EXPECT_EQ(spans.front().service, "penstock-worker");
  std::vector<std::string> keys;
  for (const auto& attribute : spans.front().from.resource().attributes()) keys.push_back(attribute.key());
  EXPECT_THAT(keys, ElementsAre("service.name", "service.version", "host.name", "process.pid"));
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_spans_exported_total 2\n"));
  for (const char* reason : {"queue_full", "undelivered", "refused"}) {
    EXPECT_THAT(registry.Text(),
                HasSubstr("penstock_spans_dropped_total{reason=\"" + std::string(reason) + "\"} 0\n"));
  }
}

}  // namespace
}  // namespace penstock
