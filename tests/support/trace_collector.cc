#include "tests/support/trace_collector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace penstock {
namespace {

namespace otlp = opentelemetry::proto;

template <typename Attributes>
std::string ValueOf(const Attributes& attributes, const std::string& key) {
  for (const otlp::common::v1::KeyValue& attribute : attributes) {
    if (attribute.key() != key) continue;
    const otlp::common::v1::AnyValue& value = attribute.value();
    if (value.has_int_value()) return absl::StrCat(value.int_value());
    if (value.has_double_value()) return absl::StrCat(value.double_value());
    return value.string_value();
  }
  return "";
}

}  // namespace

std::string CollectedSpan::Attribute(const std::string& key) const { return ValueOf(span.attributes(), key); }

class TraceCollector::Service final : public otlp::collector::trace::v1::TraceService::Service {
 public:
  grpc::Status Export(grpc::ServerContext*,
                      const otlp::collector::trace::v1::ExportTraceServiceRequest* request,
                      otlp::collector::trace::v1::ExportTraceServiceResponse* response) override {
    MutexLock lock(&mutex_);
    for (const otlp::trace::v1::ResourceSpans& of_process : request->resource_spans()) {
      otlp::trace::v1::ResourceSpans from = of_process;
      from.clear_scope_spans();
      for (const otlp::trace::v1::ScopeSpans& of_scope : of_process.scope_spans()) {
        for (const otlp::trace::v1::Span& span : of_scope.spans())
          spans_.push_back({ValueOf(from.resource().attributes(), "service.name"), from, span});
      }
    }
    if (refused_ > 0) response->mutable_partial_success()->set_rejected_spans(refused_);
    changed_.SignalAll();
    return grpc::Status::OK;
  }

  void Refuse(int64_t spans) {
    MutexLock lock(&mutex_);
    refused_ = spans;
  }

  std::vector<CollectedSpan> spans() const {
    MutexLock lock(&mutex_);
    return spans_;
  }

  bool Await(const Condition& condition, absl::Duration timeout) const {
    const absl::Time end = absl::Now() + timeout;
    MutexLock lock(&mutex_);
    while (!condition(spans_)) {
      if (absl::Now() >= end) return false;
      changed_.WaitWithTimeout(&mutex_, end - absl::Now());
    }
    return true;
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<CollectedSpan> spans_ ABSL_GUARDED_BY(mutex_);
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
};

TraceCollector::TraceCollector() : service_(std::make_unique<Service>()) {
  auto started = StartServer({.listen = "127.0.0.1:0", .services = {service_.get()}});
  EXPECT_TRUE(started.ok()) << started.status();
  if (started.ok()) server_ = *std::move(started);
}

TraceCollector::~TraceCollector() {
  if (server_.server == nullptr) return;
  server_.spare.reset();
  server_.server->Shutdown(std::chrono::system_clock::now());
  server_.server->Wait();
}

std::string TraceCollector::address() const { return absl::StrCat("127.0.0.1:", server_.port); }

void TraceCollector::Refuse(int64_t spans) { service_->Refuse(spans); }

std::vector<CollectedSpan> TraceCollector::spans() const { return service_->spans(); }

std::vector<CollectedSpan> TraceCollector::SpansOfTrace(const std::string& trace_id) const {
  std::vector<CollectedSpan> of_trace = spans();
  std::erase_if(of_trace, [&](const CollectedSpan& one) { return one.span.trace_id() != trace_id; });
  return of_trace;
}

bool TraceCollector::Await(const Condition& condition, absl::Duration timeout) const {
  return service_->Await(condition, timeout);
}

std::vector<std::string> NamesOf(const std::vector<CollectedSpan>& spans) {
  std::vector<std::string> names;
  names.reserve(spans.size());
  for (const CollectedSpan& one : spans) names.push_back(one.span.name());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace penstock
