#include "common/metrics/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

using testing::HasSubstr;

// The answer of a loopback port to "GET path", or an empty string.
std::string HttpGet(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval timeout{10, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n");
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
    char buffer[4096];
    for (ssize_t n = read(fd, buffer, sizeof(buffer)); n > 0; n = read(fd, buffer, sizeof(buffer))) {
      answer.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return answer;
}

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
  const std::string answer = HttpGet((*server)->port(), "/metrics");
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("penstock_plans_total 1\n"));
  EXPECT_THAT(answer, HasSubstr("penstock_age_seconds 4\n"));
}

TEST(MetricsTest, AnAddressThatCannotBeBoundIsRefused) {
  MetricsRegistry registry;
  const auto server = MetricsServer::Start("203.0.113.1:80", &registry);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("'203.0.113.1:80'"));
}

}  // namespace
}  // namespace penstock
