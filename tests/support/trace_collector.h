// A collector of OpenTelemetry for tests: takes spans over gRPC and keeps them.
//
//   TraceCollector collector;
//   ... --otlp-endpoint collector.address() ...
//   ASSERT_TRUE(collector.Await([](const std::vector<CollectedSpan>& spans) { return spans.size() >= 3; }));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/grpc/server.h"
#include "common/sync/sync.h"
#include "opentelemetry/proto/trace/v1/trace.pb.h"

namespace penstock {

struct CollectedSpan {
  // service.name of who sent it.
  std::string service;
  opentelemetry::proto::trace::v1::ResourceSpans from;
  opentelemetry::proto::trace::v1::Span span;

  // A number or a text, as text; empty: it has none of that name.
  std::string Attribute(const std::string& key) const;
};

class TraceCollector {
 public:
  TraceCollector();
  ~TraceCollector();
  TraceCollector(const TraceCollector&) = delete;
  TraceCollector& operator=(const TraceCollector&) = delete;

  // "127.0.0.1:41234".
  std::string address() const;
  // From now on it says of each request that it refused so many spans.
  void Refuse(int64_t spans);

  std::vector<CollectedSpan> spans() const;
  std::vector<CollectedSpan> SpansOfTrace(const std::string& trace_id) const;
  // Blocks until the condition holds of all spans so far. False after `timeout`.
  using Condition = std::function<bool(const std::vector<CollectedSpan>&)>;
  bool Await(const Condition& condition, absl::Duration timeout = absl::Seconds(20)) const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
  RunningServer server_;
};

// "batch", "plan", ..., in alphabetical order, each as often as it is there.
std::vector<std::string> NamesOf(const std::vector<CollectedSpan>& spans);

}  // namespace penstock
