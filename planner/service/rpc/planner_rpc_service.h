// penstock.v1.PlannerService over gRPC: validates requests, hands them to the engine, converts its answers.
//
//   PlannerRpcService service(&engine, [](const char* method, grpc::StatusCode code) { ... });
//   StartServer({.listen = "127.0.0.1:0", .services = {&service}});
//
// Handlers run on gRPC's threads and do not block; PlanBatch computes in the engine's pool. Program streams
// write when the reader has room (common/grpc/pull_stream.h).
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "penstock/v1/planner_service.grpc.pb.h"
#include "planner/service/engine/engine.h"

namespace penstock {

class PlannerRpcService final : public v1::PlannerService::CallbackService {
 public:
  // Told of each call that ended, by any thread.
  using RpcDone = std::function<void(const char* method, grpc::StatusCode code)>;

  // `engine` is not owned.
  PlannerRpcService(PlannerEngine* engine, RpcDone rpc_done);

  grpc::ServerUnaryReactor* RegisterJob(grpc::CallbackServerContext* context,
                                        const v1::RegisterJobRequest* request,
                                        v1::RegisterJobResponse* response) override;
  grpc::ServerUnaryReactor* SubmitBatches(grpc::CallbackServerContext* context,
                                          const v1::SubmitBatchesRequest* request,
                                          v1::SubmitBatchesResponse* response) override;
  grpc::ServerUnaryReactor* PlanBatch(grpc::CallbackServerContext* context,
                                      const v1::PlanBatchRequest* request,
                                      v1::PlanBatchResponse* response) override;
  grpc::ServerWriteReactor<v1::StreamProgramsResponse>* StreamPrograms(
      grpc::CallbackServerContext* context, const v1::StreamProgramsRequest* request) override;
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
  grpc::ServerUnaryReactor* DrainJob(grpc::CallbackServerContext* context, const v1::DrainJobRequest* request,
                                     v1::DrainJobResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;

 private:
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const char* method,
                                   const absl::Status& status);
  // The same, once what was done is durable.
  grpc::ServerUnaryReactor* AnswerWhenDurable(grpc::CallbackServerContext* context, const char* method,
                                              const absl::Status& status);
  // The job of a request that is well-formed.
  template <typename Request>
  absl::StatusOr<std::shared_ptr<Job>> JobOf(const Request& request) const;
  absl::StatusOr<std::unique_ptr<ProgramSubscription>> Subscribe(const v1::StreamProgramsRequest& request,
                                                                 WakeList::Wake wake) const;

  PlannerEngine* const engine_;
  const RpcDone rpc_done_;
};

}  // namespace penstock
