// penstock.v1.PlannerService over gRPC: validates requests, hands them to the engine, converts its answers.
//
//   EngineSlot slot;
//   PlannerRpcService service(&slot, /*standby=*/nullptr, JobAccess(nullptr),
//                             AuditedCalls(nullptr, JobAccess(nullptr)));
//   StartServer({.listen = "127.0.0.1:0", .services = {&service}});
//
// Handlers run on gRPC's threads and do not block; PlanBatch, ReviseCosts and ChangeStrategies compute in the
// engine's pool.
// Program streams write when the reader has room (common/grpc/pull_stream.h).
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "penstock/v1/planner_service.grpc.pb.h"
#include "planner/service/rpc/audited_calls.h"
#include "planner/service/rpc/engine_slot.h"
#include "planner/service/rpc/job_access.h"
#include "planner/service/rpc/standby_answers.h"
#include "planner/service/rpc/submission.h"

namespace penstock {

// Streams send bytes that are made once for all that hold them, so StreamPrograms is served raw.
using PlannerCalls =
    v1::PlannerService::WithRawCallbackMethod_StreamPrograms<v1::PlannerService::CallbackService>;

class PlannerRpcService final : public PlannerCalls {
 public:
  // `engines`: who serves; `standby`: from which GetJob and ListJobs are answered while nobody does, null:
  // they are refused then as all others. Neither is owned. `submissions`: told of what is submitted to jobs;
  // may be empty.
  PlannerRpcService(const EngineSlot* engines, StandbyReader* standby, JobAccess access, AuditedCalls audit,
                    SubmissionObserver submissions = nullptr);

  grpc::ServerUnaryReactor* RegisterJob(grpc::CallbackServerContext* context,
                                        const v1::RegisterJobRequest* request,
                                        v1::RegisterJobResponse* response) override;
  grpc::ServerUnaryReactor* SubmitBatches(grpc::CallbackServerContext* context,
                                          const v1::SubmitBatchesRequest* request,
                                          v1::SubmitBatchesResponse* response) override;
  grpc::ServerUnaryReactor* PlanBatch(grpc::CallbackServerContext* context,
                                      const v1::PlanBatchRequest* request,
                                      v1::PlanBatchResponse* response) override;
  grpc::ServerUnaryReactor* ReviseCosts(grpc::CallbackServerContext* context,
                                        const v1::ReviseCostsRequest* request,
                                        v1::ReviseCostsResponse* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamPrograms(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* ReportIteration(grpc::CallbackServerContext* context,
                                            const v1::ReportIterationRequest* request,
                                            v1::ReportIterationResponse* response) override;
  grpc::ServerUnaryReactor* RegisterWorker(grpc::CallbackServerContext* context,
                                           const v1::RegisterWorkerRequest* request,
                                           v1::RegisterWorkerResponse* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* GetIteration(grpc::CallbackServerContext* context,
                                         const v1::GetIterationRequest* request,
                                         v1::GetIterationResponse* response) override;
  grpc::ServerUnaryReactor* ChangeStrategies(grpc::CallbackServerContext* context,
                                             const v1::ChangeStrategiesRequest* request,
                                             v1::ChangeStrategiesResponse* response) override;
  grpc::ServerUnaryReactor* DrainJob(grpc::CallbackServerContext* context, const v1::DrainJobRequest* request,
                                     v1::DrainJobResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;

 private:
  // Of a request that is well-formed: the engine that serves jobs, and the job there, which the caller may
  // touch.
  struct Found {
    EnginePtr engine;
    std::shared_ptr<Job> job;
  };
  static grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status);
  // The same, once what the job was told is durable. `ended`: called with the answer, before it is given; may
  // be empty.
  using Ended = std::function<void(const absl::Status&)>;
  static grpc::ServerUnaryReactor* AnswerWhenDurable(grpc::CallbackServerContext* context, const Found& found,
                                                     const absl::Status& status, Ended ended = nullptr,
                                                     Urgency urgency = Urgency::kNow);
  template <typename Request>
  absl::StatusOr<Found> Find(const grpc::CallbackServerContext& context, const Request& request) const;
  // Answers with what `change` does to the job, once that is durable.
  template <typename Request, typename Change>
  grpc::ServerUnaryReactor* ChangeJob(grpc::CallbackServerContext* context, const Request& request,
                                      Change change, Urgency urgency = Urgency::kNow);
  // Whether the caller may ask for plans of the job that the request names, if it does.
  absl::Status CheckPlanBatch(const grpc::CallbackServerContext& context, const PlannerEngine& engine,
                              const v1::PlanBatchRequest& request) const;
  // Where the programs of a stream come from; `bytes`: its request. Keeps the engine until it is destroyed.
  absl::StatusOr<std::function<ProgramSubscription::Item()>> Subscribe(
      const grpc::CallbackServerContext& context, const grpc::ByteBuffer& bytes, WakeList::Wake wake) const;

  const EngineSlot* const engines_;
  const StandbyAnswers standby_;
  const JobAccess access_;
  const AuditedCalls audit_;
  const SubmissionObserver submissions_;
};

}  // namespace penstock
