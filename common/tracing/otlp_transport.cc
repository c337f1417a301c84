#include "common/tracing/otlp_transport.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "common/grpc/status_conversion.h"
#include "common/grpc/targets.h"
#include "common/status/annotate.h"
#include "common/sync/sync.h"
#include "common/tracing/otlp_request.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace penstock {
namespace {

using opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse;
using opentelemetry::proto::collector::trace::v1::TraceService;

class OtlpTransport final : public SpanTransport {
 public:
  OtlpTransport(const std::string& endpoint, std::vector<SpanAttribute> resource)
      : endpoint_(endpoint),
        resource_(std::move(resource)),
        stub_(TraceService::NewStub(CreateClientChannel(endpoint))) {}

  absl::StatusOr<size_t> Send(const std::vector<TraceSpan>& spans, absl::Duration timeout) override {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    // A channel that fails calls at once looks at its connections every 5 s at best.
    context.set_wait_for_ready(true);
    if (!Begin(&context)) return absl::CancelledError("the process ends");
    ExportTraceServiceResponse response;
    const grpc::Status status = stub_->Export(&context, ToOtlp(spans, resource_), &response);
    End();
    if (!status.ok())
      return AnnotateError(FromGrpcStatus(status), absl::StrCat("the collector at ", endpoint_));
    return static_cast<size_t>(std::max<int64_t>(0, response.partial_success().rejected_spans()));
  }

  void Cancel() override {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (running_ != nullptr) running_->TryCancel();
  }

 private:
  // False: it was cancelled before.
  bool Begin(grpc::ClientContext* context) {
    MutexLock lock(&mutex_);
    if (!cancelled_) running_ = context;
    return !cancelled_;
  }

  void End() {
    MutexLock lock(&mutex_);
    running_ = nullptr;
  }

  const std::string endpoint_;
  const std::vector<SpanAttribute> resource_;
  const std::unique_ptr<TraceService::Stub> stub_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the Send that runs.
  grpc::ClientContext* running_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace

std::string WhatIsWrongWithCollector(const std::string& endpoint) {
  const bool one_address = !absl::StrContains(endpoint, ',') && !absl::StrContains(endpoint, "//") &&
                           !absl::StartsWith(endpoint, "unix:");
  if (endpoint.empty() || (one_address && WhatIsWrongWithAddresses(endpoint).empty())) return "";
  return absl::StrCat("'", endpoint,
                      "': use HOST:PORT of a collector that takes OTLP over gRPC without TLS, by custom on "
                      "port 4317");
}

std::unique_ptr<SpanTransport> ConnectToCollector(const std::string& endpoint,
                                                  std::vector<SpanAttribute> resource) {
  return std::make_unique<OtlpTransport>(endpoint, std::move(resource));
}

}  // namespace penstock
