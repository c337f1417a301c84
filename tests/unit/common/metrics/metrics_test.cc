#include "common/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/support/http_exchange.h"
#include "tests/support/local_connection.h"
#include "tests/support/shortest_time.h"

namespace penstock {
namespace {

using testing::HasSubstr;

TEST(MetricsTest, CountsByLabel) {
  MetricsRegistry registry;
  const CounterFamily plans = registry.AddCounter("penstock_plans_total", "Plans made.");
  plans.Increment({{"result", "OK"}});
  plans.Increment({{"result", "OK"}});
  plans.Increment({{"result", "INTERNAL"}}, 5);
  EXPECT_THAT(registry.Text(), HasSubstr("# HELP penstock_plans_total Plans made.\n"));
  EXPECT_THAT(registry.Text(), HasSubstr("# TYPE penstock_plans_total counter\n"));
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_plans_total{result=\"OK\"} 2\n"));
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_plans_total{result=\"INTERNAL\"} 5\n"));
}

TEST(MetricsTest, AGaugeKeepsItsLastValue) {
  MetricsRegistry registry;
  const GaugeFamily depth = registry.AddGauge("penstock_depth", "Depth.");
  depth.Set({}, 3);
  depth.Set({}, 2);
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_depth 2\n"));
}

TEST(MetricsTest, AHistogramCountsUpToEachEdge) {
  MetricsRegistry registry;
  const HistogramFamily time = registry.AddHistogram("penstock_time_seconds", "Time.", {0.05, 1});
  for (const double value : {0.01, 0.05, 0.5, 7.0}) time.Observe({}, value);
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_time_seconds_bucket{le=\"0.05\"} 2\n"));
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_time_seconds_bucket{le=\"1\"} 3\n"));
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_time_seconds_bucket{le=\"+Inf\"} 4\n"));
}

TEST(MetricsTest, AComputedGaugeIsAskedAtEachScrape) {
  MetricsRegistry registry;
  double age = 1;
  registry.AddComputedGauge("penstock_age_seconds", "Age.", [&] {
    return std::vector<MetricSample>{{{{"rank", "0"}}, age++}};
  });
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_age_seconds{rank=\"0\"} 1\n"));
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_age_seconds{rank=\"0\"} 2\n"));
}

TEST(MetricsTest, ServesAllMetricsOverHttp) {
  MetricsRegistry registry;
  registry.AddCounter("penstock_plans_total", "Plans made.").Increment();
  registry.AddComputedGauge("penstock_age_seconds", "Age.", [] {
    return std::vector<MetricSample>{{{}, 4}};
  });
  const auto server = MetricsServer::Start("127.0.0.1:0", &registry);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string answer = HttpAnswerTo((*server)->port(), "GET", "/metrics");
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("penstock_plans_total 1\n"));
  EXPECT_THAT(answer, HasSubstr("penstock_age_seconds 4\n"));
}

TEST(MetricsTest, ScrapesAreAnsweredBesideThoseWhoConnectAndSayNothing) {
  MetricsRegistry registry;
  registry.AddCounter("penstock_plans_total", "Plans made.").Increment();
  const auto server = MetricsServer::Start("127.0.0.1:0", &registry);
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::Duration taken = ShortestTime([&] {
    std::vector<FileDescriptor> silent;
    for (int i = 0; i < 8; ++i) silent.push_back(ConnectToLocalPort((*server)->port()));
    const absl::Time start = absl::Now();
    EXPECT_THAT(HttpAnswerTo((*server)->port(), "GET", "/metrics"), HasSubstr("penstock_plans_total 1\n"));
    return absl::Now() - start;
  });
  // Less than one of them is waited for.
  EXPECT_LT(taken, absl::Seconds(1));
}

TEST(MetricsTest, AnAddressThatCannotBeBoundIsRefused) {
  MetricsRegistry registry;
  const auto server = MetricsServer::Start("203.0.113.1:80", &registry);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("'203.0.113.1:80'"));
}

}  // namespace
}  // namespace penstock
