#include "planner/service/rpc/submission.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/tracing/trace_parent.h"

namespace penstock {
namespace {

absl::string_view Header(const grpc::CallbackServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

}  // namespace

std::function<void(const absl::Status&)> ObserveSubmission(const SubmissionObserver& observer,
                                                           const grpc::CallbackServerContext& context,
                                                           const v1::SubmitBatchesRequest& request) {
  if (observer == nullptr) return [](const absl::Status&) {};
  return [&observer, submission = Submission{.job_id = request.job_id(),
                                             .first_iteration = request.batches(0).iteration(),
                                             .batches = static_cast<uint64_t>(request.batches_size()),
                                             .began = absl::Now(),
                                             .ended = {},
                                             .status = {},
                                             .caller = ParseTraceParent(Header(context, kTraceParentHeader),
                                                                        Header(context, kTraceStateHeader))}](
             const absl::Status& status) {
    Submission ended = submission;
    ended.ended = absl::Now();
    ended.status = status;
    observer(ended);
  };
}

}  // namespace penstock
