#include "penstock/client/planner_client.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/compact/instruction_columns.h"
#include "common/compact/packed_program.h"
#include "common/grpc/channel.h"
#include "common/grpc/status_conversion.h"
#include "common/grpc/targets.h"
#include "common/grpc/trailing_metadata.h"
#include "common/status/status_macros.h"
#include "penstock/client/refused_quota.h"
#include "penstock/client/retry_iteration.h"

namespace penstock {
namespace {

using Stub = v1::PlannerService::Stub;
using SystemTime = std::chrono::system_clock::time_point;
// A handshake beside those of the channel is tried so often at most.
constexpr std::chrono::nanoseconds kExplainEvery = std::chrono::seconds(5);
// Before a standby is asked what it has read.
constexpr absl::Duration kAskTheLeaderFor = absl::Seconds(1);
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(1);

SystemTime DeadlineIn(absl::Duration duration) { return absl::ToChronoTime(absl::Now() + duration); }

using Heard = std::function<void(const StandbyWords&)>;

// Trailing metadata becomes a payload.
absl::Status WithMetadata(absl::Status status, const grpc::ClientContext& context) {
  if (status.ok()) return status;
  if (const auto leader = TrailingMetadataOf(context, kStandbyKey))
    status = WithLeader(std::move(status), *leader);
  if (const auto quota = TrailingMetadataOf(context, kQuotaKey))
    status = WithQuota(std::move(status), *quota);
  if (const auto iteration = TrailingNumberOf(context, kRetryIterationKey))
    status = WithRetryIteration(std::move(status), *iteration);
  return status;
}

// Of an answer that a standby has from the store; nothing: the planner's own.
std::optional<StandbyWords> WordsOf(const grpc::ClientContext& context) {
  int64_t age = 0;
  if (!absl::SimpleAtoi(TrailingMetadataOf(context, kStandbyAgeKey).value_or(""), &age)) return std::nullopt;
  return StandbyWords{.leader = TrailingMetadataOf(context, kStandbyKey).value_or(""),
                      .age = absl::Milliseconds(age)};
}

absl::Status NotTheLeader(const StandbyWords& words) {
  const absl::Status status = absl::UnavailableError(absl::StrCat(
      "this planner is a standby: ", words.leader.empty()
                                         ? "nobody is known to lead"
                                         : absl::StrCat("'", words.leader, "' leads; ask there")));
  return words.leader.empty() ? status : WithLeader(status, words.leader);
}

// `heard`: null, a standby's answer is none.
template <typename Request, typename Response>
absl::StatusOr<Response> Call(Stub* stub,
                              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                              const Request& request, SystemTime deadline, bool wait_for_ready = false,
                              const Heard& heard = nullptr) {
  grpc::ClientContext context;
  context.set_deadline(deadline);
  context.set_wait_for_ready(wait_for_ready);
  Response response;
  const absl::Status status = FromStatusOfCall((stub->*method)(&context, request, &response));
  if (const std::optional<StandbyWords> words = WordsOf(context); words.has_value()) {
    if (heard == nullptr) return NotTheLeader(*words);
    heard(*words);
  }
  if (!status.ok()) return WithMetadata(status, context);
  return response;
}

template <typename Request>
Request Compact(Request request) {
  request.set_compact_version(kCompactVersion);
  return request;
}

// An answer with a plan, its programs in full.
template <typename Response>
absl::StatusOr<Response> Unpacked(absl::StatusOr<Response> answer) {
  if (!answer.ok()) return answer;
  PENSTOCK_RETURN_IF_ERROR(UnpackPrograms(answer->mutable_instruction_columns(), answer->mutable_plan()));
  return answer;
}

}  // namespace

template <typename Request, typename Response>
absl::StatusOr<Response> PlannerClient::CallUntil(Method<Request, Response> method, const Request& request,
                                                  absl::Duration deadline) {
  const SystemTime end = DeadlineIn(deadline);
  absl::Duration pause = kFirstPause;
  while (true) {
    auto result = Call(stub_.get(), method, request, end, /*wait_for_ready=*/false, ways_.heard);
    if (!absl::IsUnavailable(result.status()) || DeadlineIn(pause) >= end) return result;
    if (ways_.ends_where_another_leads && LeaderNamedBy(result.status()).has_value()) return result;
    PENSTOCK_RETURN_IF_ERROR(WhyNoConnection());
    // Also before the last: a channel on which nobody waits looks for its planner every some seconds only.
    PauseUntilConnected(channel_.get(), pause);
    if (!ways_.repeats) return result;
    pause = std::min(pause * 2, kLongestPause);
  }
}

template <typename Request, typename Response>
absl::StatusOr<Response> PlannerClient::ReadUntil(Method<Request, Response> method, const Request& request,
                                                  absl::Duration deadline) {
  if (ways_.heard == nullptr || !knows_several_) return CallUntil(method, request, deadline);
  const absl::Duration of_leader = std::min(deadline, kAskTheLeaderFor);
  auto result = CallUntil(method, request, of_leader);
  if (!absl::IsUnavailable(result.status()) && !absl::IsDeadlineExceeded(result.status())) return result;
  auto other = Call(any_stub_.get(), method, request, DeadlineIn(deadline - of_leader),
                    /*wait_for_ready=*/true, ways_.heard);
  // What was wrong with the leader says more than that no other answered either.
  return absl::IsDeadlineExceeded(other.status()) ? result : other;
}

absl::Status PlannerClient::WhyNoConnection() {
  if (explain_ == nullptr || channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY)
    return absl::OkStatus();
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  int64_t next = next_explanation_ns_;
  // Of several threads one asks.
  if (now < next || !next_explanation_ns_.compare_exchange_strong(next, now + kExplainEvery.count()))
    return absl::OkStatus();
  return explain_();
}

PlannerClient::PlannerClient(const std::string& addresses, const ChannelSecurity& security)
    : PlannerClient(
          CreateClientChannel(addresses, {}, Among::kLeader, security),
          NamesSeveral(addresses) ? CreateClientChannel(addresses, {}, Among::kAll, security) : nullptr,
          security.explain == nullptr ? Explain() : [addresses, explain = security.explain] {
            return explain(addresses);
          }) {}

PlannerClient::PlannerClient(std::shared_ptr<grpc::Channel> channel)
    : PlannerClient(std::move(channel), nullptr, nullptr) {}

PlannerClient::PlannerClient(std::shared_ptr<grpc::Channel> channel,
                             const std::shared_ptr<grpc::Channel>& any, Explain explain)
    : channel_(std::move(channel)),
      stub_(v1::PlannerService::NewStub(channel_)),
      any_stub_(v1::PlannerService::NewStub(any != nullptr ? any : channel_)),
      knows_several_(any != nullptr),
      explain_(std::move(explain)) {}

absl::StatusOr<v1::RegisterJobResponse> PlannerClient::RegisterJob(const v1::RegisterJobRequest& request,
                                                                   absl::Duration deadline) {
  return CallUntil(&Stub::RegisterJob, request, deadline);
}

absl::StatusOr<v1::SubmitBatchesResponse> PlannerClient::SubmitBatches(
    const v1::SubmitBatchesRequest& request, absl::Duration deadline) {
  return CallUntil(&Stub::SubmitBatches, request, deadline);
}

absl::StatusOr<v1::PlanBatchResponse> PlannerClient::PlanBatch(const v1::PlanBatchRequest& request,
                                                               absl::Duration deadline) {
  auto plan = Call(request.has_job() ? any_stub_.get() : stub_.get(), &Stub::PlanBatch, Compact(request),
                   DeadlineIn(deadline));
  if (absl::IsUnavailable(plan.status())) PENSTOCK_RETURN_IF_ERROR(WhyNoConnection());
  return Unpacked(std::move(plan));
}

absl::StatusOr<v1::ReviseCostsResponse> PlannerClient::ReviseCosts(const v1::ReviseCostsRequest& request,
                                                                   absl::Duration deadline) {
  return Call(any_stub_.get(), &Stub::ReviseCosts, request, DeadlineIn(deadline));
}

absl::StatusOr<v1::ReportIterationResponse> PlannerClient::ReportIteration(
    const v1::ReportIterationRequest& request, absl::Duration deadline) {
  return CallUntil(&Stub::ReportIteration, request, deadline);
}

absl::StatusOr<v1::RegisterWorkerResponse> PlannerClient::RegisterWorker(
    const v1::RegisterWorkerRequest& request, absl::Duration deadline) {
  return CallUntil(&Stub::RegisterWorker, request, deadline);
}

absl::StatusOr<v1::HeartbeatResponse> PlannerClient::Heartbeat(const v1::HeartbeatRequest& request,
                                                               absl::Duration deadline) {
  return Call(stub_.get(), &Stub::Heartbeat, request, DeadlineIn(deadline), /*wait_for_ready=*/true);
}

absl::StatusOr<v1::GetJobResponse> PlannerClient::GetJob(const v1::GetJobRequest& request,
                                                         absl::Duration deadline) {
  return ReadUntil(&Stub::GetJob, request, deadline);
}

absl::StatusOr<v1::ListJobsResponse> PlannerClient::ListJobs(const v1::ListJobsRequest& request,
                                                             absl::Duration deadline) {
  return ReadUntil(&Stub::ListJobs, request, deadline);
}

absl::StatusOr<v1::GetIterationResponse> PlannerClient::GetIteration(const v1::GetIterationRequest& request,
                                                                     absl::Duration deadline) {
  return Unpacked(CallUntil(&Stub::GetIteration, Compact(request), deadline));
}

absl::StatusOr<v1::ChangeStrategiesResponse> PlannerClient::ChangeStrategies(
    const v1::ChangeStrategiesRequest& request, absl::Duration deadline) {
  return CallUntil(&Stub::ChangeStrategies, request, deadline);
}

absl::StatusOr<v1::DrainJobResponse> PlannerClient::DrainJob(const v1::DrainJobRequest& request,
                                                             absl::Duration deadline) {
  return CallUntil(&Stub::DrainJob, request, deadline);
}

absl::StatusOr<v1::DeleteJobResponse> PlannerClient::DeleteJob(const v1::DeleteJobRequest& request,
                                                               absl::Duration deadline) {
  return CallUntil(&Stub::DeleteJob, request, deadline);
}

std::unique_ptr<ProgramStream> PlannerClient::StreamPrograms(const v1::StreamProgramsRequest& request,
                                                             absl::Duration deadline) {
  return std::make_unique<ProgramStream>(channel_, request, deadline);
}

}  // namespace penstock
