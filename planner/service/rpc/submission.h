// Tells of calls of SubmitBatches that were answered, with the span of the caller where it names one.
#pragma once

#include <grpcpp/server_context.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/tracing/trace_span.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

struct Submission {
  std::string job_id;
  uint64_t first_iteration = 0;
  // Of consecutive iterations.
  uint64_t batches = 0;
  // Times of day: the call came, and its answer was ready.
  absl::Time began;
  absl::Time ended;
  absl::Status status;
  // W3C's traceparent of the call.
  std::optional<SpanLink> caller;
};

// Called by any thread; must not block.
using SubmissionObserver = std::function<void(const Submission&)>;

// To be called with how the call ends, when its context may be gone. `request` is well-formed. Does nothing
// where `observer` is empty; else that must outlive the call.
std::function<void(const absl::Status&)> ObserveSubmission(const SubmissionObserver& observer,
                                                           const grpc::CallbackServerContext& context,
                                                           const v1::SubmitBatchesRequest& request);

}  // namespace penstock
