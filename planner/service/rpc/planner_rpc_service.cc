#include "planner/service/rpc/planner_rpc_service.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/compact/instruction_columns.h"
#include "common/compact/packed_plan.h"
#include "common/grpc/pull_stream.h"
#include "common/grpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "penstock/client/finished_job.h"
#include "penstock/client/refused_quota.h"
#include "penstock/client/retry_iteration.h"
#include "planner/service/engine/message_limit.h"
#include "planner/service/rpc/pooled_call_reactor.h"
#include "planner/service/rpc/register_job_reactor.h"
#include "planner/service/rpc/request_validation.h"

namespace penstock {
namespace {

using ProgramStream = PullStream<grpc::ByteBuffer>;

// Moves a result into gRPC's response; its error otherwise.
template <typename Response>
absl::Status Take(absl::StatusOr<Response> result, Response* response) {
  if (!result.ok()) return result.status();
  *response = *std::move(result);
  return absl::OkStatus();
}

// Keeps the bytes for as long as the transport needs them, without a copy.
grpc::ByteBuffer ToByteBuffer(ProgramBytes bytes) {
  auto* const held = new ProgramBytes(std::move(bytes));
  const grpc::Slice slice(
      const_cast<char*>((*held)->data()), (*held)->size(),
      [](void* user) { delete static_cast<ProgramBytes*>(user); }, held);
  return {&slice, 1};
}

ProgramStream::Item ToStreamItem(ProgramSubscription::Item item) {
  if (auto* bytes = std::get_if<ProgramBytes>(&item)) return ToByteBuffer(std::move(*bytes));
  if (auto* end = std::get_if<absl::Status>(&item)) return *end;
  return ProgramStream::Pending{};
}

}  // namespace

PlannerRpcService::PlannerRpcService(const EngineSlot* engines, StandbyReader* standby, JobAccess access,
                                     AuditedCalls audit, SubmissionObserver submissions)
    : engines_(engines),
      standby_(standby, access),
      access_(std::move(access)),
      audit_(std::move(audit)),
      submissions_(std::move(submissions)) {}

grpc::ServerUnaryReactor* PlannerRpcService::Answer(grpc::CallbackServerContext* context,
                                                    const absl::Status& status) {
  if (const auto iteration = RetryIteration(status); iteration.has_value()) {
    context->AddTrailingMetadata(kRetryIterationKey, absl::StrCat(*iteration));
  }
  if (const auto iterations = FinishedJob(status); iterations.has_value())
    context->AddTrailingMetadata(kFinishedJobKey, absl::StrCat(*iterations));
  if (const auto quota = QuotaNamedBy(status); quota.has_value())
    context->AddTrailingMetadata(kQuotaKey, *quota);
  NameLeader(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* PlannerRpcService::AnswerWhenDurable(grpc::CallbackServerContext* context,
                                                               const Found& found, const absl::Status& status,
                                                               Ended ended, Urgency urgency) {
  if (!status.ok()) {
    if (ended != nullptr) ended(status);
    return Answer(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  found.job->WhenDurable(
      [reactor, ended = std::move(ended)](const absl::Status& durable) {
        if (ended != nullptr) ended(durable);
        reactor->Finish(ToGrpcStatus(durable));
      },
      urgency);
  return reactor;
}

template <typename Request>
absl::StatusOr<PlannerRpcService::Found> PlannerRpcService::Find(const grpc::CallbackServerContext& context,
                                                                 const Request& request) const {
  PENSTOCK_RETURN_IF_ERROR(Validate(request));
  PENSTOCK_ASSIGN_OR_RETURN(EnginePtr engine, engines_->ForJobs());
  PENSTOCK_ASSIGN_OR_RETURN(std::shared_ptr<Job> job, engine->FindJob(request.job_id()));
  PENSTOCK_RETURN_IF_ERROR(access_.Check(context, job->spec()));
  return Found{std::move(engine), std::move(job)};
}

template <typename Request, typename Change>
grpc::ServerUnaryReactor* PlannerRpcService::ChangeJob(grpc::CallbackServerContext* context,
                                                       const Request& request, Change change,
                                                       Urgency urgency) {
  const absl::StatusOr<Found> found = Find(*context, request);
  if (!found.ok()) return Answer(context, found.status());
  return AnswerWhenDurable(context, *found, change(*found->job), nullptr, urgency);
}

grpc::ServerUnaryReactor* PlannerRpcService::RegisterJob(grpc::CallbackServerContext* context,
                                                         const v1::RegisterJobRequest* request,
                                                         v1::RegisterJobResponse* response) {
  const auto ended = audit_.Later(*context, "RegisterJob", request->job().job_id());
  const auto refuse = [&](const absl::Status& status) {
    ended(status);
    return Answer(context, status);
  };
  if (absl::Status status = Validate(*request); !status.ok()) return refuse(status);
  absl::StatusOr<std::string> owner = access_.OwnerOf(*context, request->job().owner());
  if (!owner.ok()) return refuse(owner.status());
  const absl::StatusOr<EnginePtr> serving = engines_->ForJobs();
  if (!serving.ok()) return refuse(serving.status());
  v1::JobSpec job = request->job();
  job.set_owner(*std::move(owner));
  return RegisterJobReactor::Start(*serving, job, response, ended);
}

grpc::ServerUnaryReactor* PlannerRpcService::SubmitBatches(grpc::CallbackServerContext* context,
                                                           const v1::SubmitBatchesRequest* request,
                                                           v1::SubmitBatchesResponse* response) {
  const absl::StatusOr<Found> found = Find(*context, *request);
  if (!found.ok()) return Answer(context, found.status());
  Ended ended = ObserveSubmission(submissions_, *context, *request);
  const absl::Status status = Take(found->job->SubmitBatches(*request), response);
  return AnswerWhenDurable(context, *found, status, std::move(ended));
}

namespace {

absl::StatusOr<v1::PlanBatchResponse> AnswerOf(v1::Plan plan, uint32_t compact_version, int64_t most_bytes) {
  v1::PlanBatchResponse answer;
  if (compact_version >= kCompactVersion) {
    PackedPlan(std::move(plan)).CompactTo(answer.mutable_plan(), answer.mutable_instruction_columns());
  } else {
    *answer.mutable_plan() = std::move(plan);
  }
  PENSTOCK_RETURN_IF_ERROR(CheckMessage("the plan", answer, most_bytes, compact_version));
  return answer;
}

}  // namespace

grpc::ServerUnaryReactor* PlannerRpcService::PlanBatch(grpc::CallbackServerContext* context,
                                                       const v1::PlanBatchRequest* request,
                                                       v1::PlanBatchResponse* response) {
  if (absl::Status status = Validate(*request); !status.ok()) return Answer(context, status);
  absl::StatusOr<EnginePtr> engine = request->has_job() ? engines_->ForWhatIfs() : engines_->ForJobs();
  if (!engine.ok()) return Answer(context, engine.status());
  if (absl::Status status = CheckPlanBatch(*context, **engine, *request); !status.ok())
    return Answer(context, status);
  const EnginePtr planner = *std::move(engine);
  return PooledCallReactor<v1::PlanBatchResponse>::Start(planner, response, [&](auto done) {
    return planner->PlanBatch(*request, access_.PayerOfCaller(*context),
                              [done, compact = request->compact_version(),
                               most = planner->message_bytes()](absl::StatusOr<v1::Plan> plan) {
                                if (!plan.ok()) return done(plan.status());
                                done(AnswerOf(*std::move(plan), compact, most));
                              });
  });
}

grpc::ServerUnaryReactor* PlannerRpcService::ReviseCosts(grpc::CallbackServerContext* context,
                                                         const v1::ReviseCostsRequest* request,
                                                         v1::ReviseCostsResponse* response) {
  if (absl::Status status = Validate(*request); !status.ok()) return Answer(context, status);
  absl::StatusOr<EnginePtr> engine = engines_->ForWhatIfs();
  if (!engine.ok()) return Answer(context, engine.status());
  const EnginePtr planner = *std::move(engine);
  return PooledCallReactor<v1::ReviseCostsResponse>::Start(planner, response, [&](auto done) {
    return planner->ReviseCosts(*request, access_.PayerOfCaller(*context), std::move(done));
  });
}

absl::Status PlannerRpcService::CheckPlanBatch(const grpc::CallbackServerContext& context,
                                               const PlannerEngine& engine,
                                               const v1::PlanBatchRequest& request) const {
  if (request.has_job()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, engine.FindJob(request.job_id()));
  return access_.Check(context, job->spec());
}

absl::StatusOr<std::function<ProgramSubscription::Item()>> PlannerRpcService::Subscribe(
    const grpc::CallbackServerContext& context, const grpc::ByteBuffer& bytes, WakeList::Wake wake) const {
  v1::StreamProgramsRequest request;
  grpc::ByteBuffer copy(bytes);  // of references: reading takes the buffer apart
  // gRPC's own answer, which NameMalformedRequests explains.
  if (!grpc::SerializationTraits<v1::StreamProgramsRequest>::Deserialize(&copy, &request).ok())
    return absl::UnimplementedError("");
  PENSTOCK_ASSIGN_OR_RETURN(Found found, Find(context, request));
  // Shared only because std::function wants to be copyable.
  std::shared_ptr<ProgramSubscription> subscription = found.job->Subscribe(request, std::move(wake));
  return [engine = std::move(found.engine), subscription = std::move(subscription)] {
    return subscription->Next();
  };
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PlannerRpcService::StreamPrograms(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
  auto stream = ProgramStream::Create();
  auto programs = Subscribe(*context, *bytes, [weak = std::weak_ptr<ProgramStream>(stream)] {
    if (const auto stream = weak.lock()) stream->Wake();
  });
  ProgramStream::Source source;
  if (programs.ok()) {
    source = [next = *std::move(programs)] { return ToStreamItem(next()); };
  } else {
    source = [status = programs.status()] { return ProgramStream::Item(status); };
  }
  stream->Start(std::move(source));
  return stream.get();
}

grpc::ServerUnaryReactor* PlannerRpcService::ReportIteration(grpc::CallbackServerContext* context,
                                                             const v1::ReportIterationRequest* request,
                                                             v1::ReportIterationResponse*) {
  // The rank goes on meanwhile.
  return ChangeJob(
      context, *request, [&](Job& job) { return job.ReportIteration(*request); }, Urgency::kSoon);
}

grpc::ServerUnaryReactor* PlannerRpcService::RegisterWorker(grpc::CallbackServerContext* context,
                                                            const v1::RegisterWorkerRequest* request,
                                                            v1::RegisterWorkerResponse* response) {
  return ChangeJob(context, *request, [&](Job& job) { return Take(job.RegisterWorker(*request), response); });
}

grpc::ServerUnaryReactor* PlannerRpcService::Heartbeat(grpc::CallbackServerContext* context,
                                                       const v1::HeartbeatRequest* request,
                                                       v1::HeartbeatResponse* response) {
  const auto answer = [&]() -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(const Found found, Find(*context, *request));
    return Take(found.job->Heartbeat(*request), response);
  };
  return Answer(context, answer());
}

grpc::ServerUnaryReactor* PlannerRpcService::GetJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request,
                                                    v1::GetJobResponse* response) {
  if (absl::Status status = Validate(*request); !status.ok()) return Answer(context, status);
  if (const absl::Status refusal = engines_->ForJobs().status(); !refusal.ok())
    return standby_.GetJob(context, request, response, refusal);
  const auto answer = [&]() -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(const Found found, Find(*context, *request));
    *response = found.job->Get(request->from_iteration());
    for (const v1::QuotaUse& use : found.engine->QuotaUses({found.job->spec().owner()}))
      *response->add_quotas() = use;
    return absl::OkStatus();
  };
  return Answer(context, answer());
}

grpc::ServerUnaryReactor* PlannerRpcService::ListJobs(grpc::CallbackServerContext* context,
                                                      const v1::ListJobsRequest*,
                                                      v1::ListJobsResponse* response) {
  const absl::StatusOr<EnginePtr> engine = engines_->ForJobs();
  if (!engine.ok()) return standby_.ListJobs(context, response, engine.status());
  const Caller caller = access_.CallerOf(*context);
  std::set<std::string> owners;
  for (const std::shared_ptr<Job>& job : (*engine)->Jobs()) {
    if (!JobAccess::MayTouch(caller, job->spec())) continue;
    *response->add_jobs() = job->Status();
    owners.insert(job->spec().owner());
  }
  for (const v1::QuotaUse& use : (*engine)->QuotaUses(owners)) *response->add_quotas() = use;
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* PlannerRpcService::GetIteration(grpc::CallbackServerContext* context,
                                                          const v1::GetIterationRequest* request,
                                                          v1::GetIterationResponse* response) {
  const auto answer = [&]() -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(const Found found, Find(*context, *request));
    return Take(found.job->GetIteration(request->iteration(), request->compact_version()), response);
  };
  return Answer(context, answer());
}

grpc::ServerUnaryReactor* PlannerRpcService::ChangeStrategies(grpc::CallbackServerContext* context,
                                                              const v1::ChangeStrategiesRequest* request,
                                                              v1::ChangeStrategiesResponse* response) {
  const absl::StatusOr<Found> found = Find(*context, *request);
  // A question, which changes nothing.
  if (found.ok() && request->strategies().empty())
    return Answer(context, Take(found->job->StrategiesNow(), response));
  auto ended = audit_.Later(*context, "ChangeStrategies", request->job_id());
  if (!found.ok()) {
    ended(found.status());
    return Answer(context, found.status());
  }
  return PooledCallReactor<v1::ChangeStrategiesResponse>::Start(found->engine, response, [&](auto done) {
    return found->job->ChangeStrategies(
        *request, [done, ended = std::move(ended)](absl::StatusOr<v1::ChangeStrategiesResponse> changed) {
          ended(changed.status());
          done(std::move(changed));
        });
  });
}

grpc::ServerUnaryReactor* PlannerRpcService::DrainJob(grpc::CallbackServerContext* context,
                                                      const v1::DrainJobRequest* request,
                                                      v1::DrainJobResponse* response) {
  const absl::StatusOr<Found> found = Find(*context, *request);
  const absl::StatusOr<v1::JobState> state =
      found.ok() ? found->job->Drain() : absl::StatusOr<v1::JobState>(found.status());
  audit_.Ended(*context, "DrainJob", request->job_id(), state.status());
  if (!state.ok()) return Answer(context, state.status());
  response->set_state(*state);
  return AnswerWhenDurable(context, *found, absl::OkStatus());
}

grpc::ServerUnaryReactor* PlannerRpcService::DeleteJob(grpc::CallbackServerContext* context,
                                                       const v1::DeleteJobRequest* request,
                                                       v1::DeleteJobResponse*) {
  const absl::StatusOr<Found> found = Find(*context, *request);
  absl::Status status = found.status();
  if (status.ok()) status = found->engine->DeleteJob(request->job_id(), request->force());
  audit_.Ended(*context, "DeleteJob", request->job_id(), status);
  if (!status.ok()) return Answer(context, status);
  return AnswerWhenDurable(context, *found, status);
}

}  // namespace penstock
