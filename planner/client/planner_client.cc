#include "penstock/client/planner_client.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "common/grpc/status_conversion.h"
#include "common/grpc/targets.h"
#include "penstock/client/retry_iteration.h"

namespace penstock {
namespace {

using Stub = v1::PlannerService::Stub;
using SystemTime = std::chrono::system_clock::time_point;
template <typename Request, typename Response>
using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(1);

SystemTime DeadlineIn(absl::Duration duration) { return absl::ToChronoTime(absl::Now() + duration); }

// Trailing metadata becomes a payload.
absl::Status WithMetadata(absl::Status status, const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(kRetryIterationKey);
  uint64_t iteration = 0;
  if (status.ok() || found == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &iteration)) {
    return status;
  }
  return WithRetryIteration(std::move(status), iteration);
}

template <typename Request, typename Response>
absl::StatusOr<Response> Call(Stub* stub, Method<Request, Response> method, const Request& request,
                              SystemTime deadline, bool wait_for_ready = false) {
  grpc::ClientContext context;
  context.set_deadline(deadline);
  context.set_wait_for_ready(wait_for_ready);
  Response response;
  const absl::Status status = FromStatusOfCall((stub->*method)(&context, request, &response));
  if (!status.ok()) return WithMetadata(status, context);
  return response;
}

// For calls that may be repeated, and are if `repeats`.
template <typename Request, typename Response>
absl::StatusOr<Response> CallUntil(bool repeats, grpc::Channel* channel, Stub* stub,
                                   Method<Request, Response> method, const Request& request,
                                   absl::Duration deadline) {
  const SystemTime end = DeadlineIn(deadline);
  absl::Duration pause = kFirstPause;
  while (true) {
    auto result = Call(stub, method, request, end);
    if (!absl::IsUnavailable(result.status()) || DeadlineIn(pause) >= end) return result;
    // Also before the last: a channel on which nobody waits looks for its planner every some seconds only.
    PauseUntilConnected(channel, pause);
    if (!repeats) return result;
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace

PlannerClient::PlannerClient(const std::string& addresses, const ChannelSecurity& security)
    : PlannerClient(
          CreateClientChannel(addresses, {}, Among::kLeader, security),
          NamesSeveral(addresses) ? CreateClientChannel(addresses, {}, Among::kAll, security) : nullptr) {}

PlannerClient::PlannerClient(std::shared_ptr<grpc::Channel> channel)
    : PlannerClient(std::move(channel), nullptr) {}

PlannerClient::PlannerClient(std::shared_ptr<grpc::Channel> channel,
                             const std::shared_ptr<grpc::Channel>& any)
    : channel_(std::move(channel)),
      stub_(v1::PlannerService::NewStub(channel_)),
      any_stub_(v1::PlannerService::NewStub(any != nullptr ? any : channel_)) {}

absl::StatusOr<v1::RegisterJobResponse> PlannerClient::RegisterJob(const v1::RegisterJobRequest& request,
                                                                   absl::Duration deadline) {
  return CallUntil(repeats_, channel_.get(), stub_.get(), &Stub::RegisterJob, request, deadline);
}

absl::StatusOr<v1::SubmitBatchesResponse> PlannerClient::SubmitBatches(
    const v1::SubmitBatchesRequest& request, absl::Duration deadline) {
  return CallUntil(repeats_, channel_.get(), stub_.get(), &Stub::SubmitBatches, request, deadline);
}

absl::StatusOr<v1::PlanBatchResponse> PlannerClient::PlanBatch(const v1::PlanBatchRequest& request,
                                                               absl::Duration deadline) {
  return Call(request.has_job() ? any_stub_.get() : stub_.get(), &Stub::PlanBatch, request,
              DeadlineIn(deadline));
}

absl::StatusOr<v1::ReviseCostsResponse> PlannerClient::ReviseCosts(const v1::ReviseCostsRequest& request,
                                                                   absl::Duration deadline) {
  return Call(any_stub_.get(), &Stub::ReviseCosts, request, DeadlineIn(deadline));
}

absl::StatusOr<v1::ReportIterationResponse> PlannerClient::ReportIteration(
    const v1::ReportIterationRequest& request, absl::Duration deadline) {
  return CallUntil(repeats_, channel_.get(), stub_.get(), &Stub::ReportIteration, request, deadline);
}

absl::StatusOr<v1::RegisterWorkerResponse> PlannerClient::RegisterWorker(
    const v1::RegisterWorkerRequest& request, absl::Duration deadline) {
  return CallUntil(repeats_, channel_.get(), stub_.get(), &Stub::RegisterWorker, request, deadline);
}

absl::StatusOr<v1::HeartbeatResponse> PlannerClient::Heartbeat(const v1::HeartbeatRequest& request,
                                                               absl::Duration deadline) {
  return Call(stub_.get(), &Stub::Heartbeat, request, DeadlineIn(deadline), /*wait_for_ready=*/true);
}

absl::StatusOr<v1::GetJobResponse> PlannerClient::GetJob(const v1::GetJobRequest& request,
                                                         absl::Duration deadline) {
  return CallUntil(repeats_, channel_.get(), stub_.get(), &Stub::GetJob, request, deadline);
}

absl::StatusOr<v1::ListJobsResponse> PlannerClient::ListJobs(const v1::ListJobsRequest& request,
                                                             absl::Duration deadline) {
  return CallUntil(repeats_, channel_.get(), stub_.get(), &Stub::ListJobs, request, deadline);
}

absl::StatusOr<v1::GetIterationResponse> PlannerClient::GetIteration(const v1::GetIterationRequest& request,
                                                                     absl::Duration deadline) {
  return CallUntil(repeats_, channel_.get(), stub_.get(), &Stub::GetIteration, request, deadline);
}

absl::StatusOr<v1::DrainJobResponse> PlannerClient::DrainJob(const v1::DrainJobRequest& request,
                                                             absl::Duration deadline) {
  return CallUntil(repeats_, channel_.get(), stub_.get(), &Stub::DrainJob, request, deadline);
}

absl::StatusOr<v1::DeleteJobResponse> PlannerClient::DeleteJob(const v1::DeleteJobRequest& request,
                                                               absl::Duration deadline) {
  return CallUntil(repeats_, channel_.get(), stub_.get(), &Stub::DeleteJob, request, deadline);
}

std::unique_ptr<ProgramStream> PlannerClient::StreamPrograms(const v1::StreamProgramsRequest& request,
                                                             absl::Duration deadline) {
  return std::make_unique<ProgramStream>(channel_, request, deadline);
}

}  // namespace penstock
