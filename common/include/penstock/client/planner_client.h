// The client of the planner service: what frameworks link, and what `penstock` uses.
//
// A framework that only wants plans needs one call:
//
//   PlannerClient client("127.0.0.1:50051");
//   v1::PlanBatchRequest request;
//   *request.mutable_job() = spec;                 // model, mesh, policy, cost profile
//   *request.mutable_batch() = batch;              // sample lengths
//   absl::StatusOr<v1::PlanBatchResponse> answer = client.PlanBatch(request);
//   // answer->plan().replicas(): micro-batches; .programs(): schedule; .predicted(): cost
//
// One that wants plans ahead of time registers a job, submits batches and reads a stream:
//
//   client.RegisterJob(register_request);
//   client.SubmitBatches(submit_request);
//   std::unique_ptr<ProgramStream> stream = client.StreamPrograms(stream_request);
//   absl::StatusOr<std::optional<v1::StreamProgramsResponse>> program = stream->Next();
//   client.ReportIteration(report);                // opens the look-ahead window further
//
// Every method is a method of penstock.v1.PlannerService with the errors that planner_service.proto names,
// and blocks until the answer is there or the deadline is over (DEADLINE_EXCEEDED). While the planner cannot
// be reached (UNAVAILABLE), calls that are safe to repeat are repeated with growing pauses until the
// deadline, unless that lies with certificates, which another try would not mend (ChannelSecurity::explain);
// Heartbeat and PlanBatch are not: what they say or ask is soon stale. Heartbeat waits for a
// planner until its deadline. Thread-safe.
#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/client/program_stream.h"
#include "penstock/client/security.h"
#include "penstock/client/standby.h"
#include "penstock/v1/planner_service.grpc.pb.h"

namespace penstock {

class PlannerClient {
 public:
  // From the call to its answer, repetitions included.
  static constexpr absl::Duration kCallDeadline = absl::Seconds(10);
  // A batch may wait in the planner's queue; a job may leave its stages to the planner, which plans several
  // batches to choose them.
  static constexpr absl::Duration kPlanDeadline = absl::Seconds(60);
  static constexpr absl::Duration kHeartbeatDeadline = absl::Seconds(2);

  // `addresses` is "host:port", or those of several planners of which one leads: "a:7070,b:7070", or
  // "dns:///planners:7070" for a name that has the addresses of all. Calls go to the one that leads; a
  // PlanBatch that names no job goes to any. Does not connect yet, but looks up the names of a list.
  explicit PlannerClient(const std::string& addresses, const ChannelSecurity& security = {});
  explicit PlannerClient(std::shared_ptr<grpc::Channel> channel);

  // From now on a call that finds no planner ends with UNAVAILABLE soon, and is not repeated until its
  // deadline: for callers that have other things to look after meanwhile. Before the first call.
  void RepeatNoCall() { ways_.repeats = false; }
  // From now on a planner's refusal that names another as the leader ends a call at once: for a client with
  // one address that a person waits for. Before the first call.
  void EndWhereAnotherLeads() { ways_.ends_where_another_leads = true; }
  // From now on GetJob and ListJobs take what a standby has read from the store, and `heard` is called with
  // who leads and how old that is before such an answer is returned. Of several planners the leader is asked
  // for a second, and then any. Without it a standby's answer is
  // UNAVAILABLE, as those to all other calls: whoever acts on it needs the leader's. Before the first call.
  void TakeStandbys(std::function<void(const StandbyWords&)> heard) { ways_.heard = std::move(heard); }

  absl::StatusOr<v1::RegisterJobResponse> RegisterJob(const v1::RegisterJobRequest& request,
                                                      absl::Duration deadline = kPlanDeadline);
  // Beyond the window or with a full queue: RESOURCE_EXHAUSTED, and RetryIteration(status)
  // (retry_iteration.h) is the iteration to retry from.
  absl::StatusOr<v1::SubmitBatchesResponse> SubmitBatches(const v1::SubmitBatchesRequest& request,
                                                          absl::Duration deadline = kCallDeadline);
  absl::StatusOr<v1::PlanBatchResponse> PlanBatch(const v1::PlanBatchRequest& request,
                                                  absl::Duration deadline = kPlanDeadline);
  absl::StatusOr<v1::ReviseCostsResponse> ReviseCosts(const v1::ReviseCostsRequest& request,
                                                      absl::Duration deadline = kPlanDeadline);
  absl::StatusOr<v1::ReportIterationResponse> ReportIteration(const v1::ReportIterationRequest& request,
                                                              absl::Duration deadline = kCallDeadline);
  absl::StatusOr<v1::RegisterWorkerResponse> RegisterWorker(const v1::RegisterWorkerRequest& request,
                                                            absl::Duration deadline = kCallDeadline);
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const v1::HeartbeatRequest& request,
                                                  absl::Duration deadline = kHeartbeatDeadline);
  absl::StatusOr<v1::GetJobResponse> GetJob(const v1::GetJobRequest& request,
                                            absl::Duration deadline = kCallDeadline);
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request = {},
                                                absl::Duration deadline = kCallDeadline);
  absl::StatusOr<v1::GetIterationResponse> GetIteration(const v1::GetIterationRequest& request,
                                                        absl::Duration deadline = kCallDeadline);
  // Repeated while the planner prepares the job, or its workers join: see PlannerService.
  absl::StatusOr<v1::ChangeStrategiesResponse> ChangeStrategies(const v1::ChangeStrategiesRequest& request,
                                                                absl::Duration deadline = kPlanDeadline);
  absl::StatusOr<v1::DrainJobResponse> DrainJob(const v1::DrainJobRequest& request,
                                                absl::Duration deadline = kCallDeadline);
  absl::StatusOr<v1::DeleteJobResponse> DeleteJob(const v1::DeleteJobRequest& request,
                                                  absl::Duration deadline = kCallDeadline);

  // Opens the stream without waiting for the planner; errors come from Next(). A stream lives as long as its
  // job, so it has no deadline unless one is given: keepalive notices a planner that is gone. May outlive the
  // client.
  std::unique_ptr<ProgramStream> StreamPrograms(const v1::StreamProgramsRequest& request,
                                                absl::Duration deadline = absl::InfiniteDuration());

 private:
  using Explain = std::function<absl::Status()>;
  PlannerClient(std::shared_ptr<grpc::Channel> channel, const std::shared_ptr<grpc::Channel>& any,
                Explain explain);

  template <typename Request, typename Response>
  using Method = grpc::Status (v1::PlannerService::Stub::*)(grpc::ClientContext*, const Request&, Response*);
  // For calls that may be repeated.
  template <typename Request, typename Response>
  absl::StatusOr<Response> CallUntil(Method<Request, Response> method, const Request& request,
                                     absl::Duration deadline);

  // The same for calls that a standby may answer.
  template <typename Request, typename Response>
  absl::StatusOr<Response> ReadUntil(Method<Request, Response> method, const Request& request,
                                     absl::Duration deadline);
  // Why there is no connection, asked now and then only; OK: not known.
  absl::Status WhyNoConnection();
  // What callers chose.
  struct Ways {
    bool repeats = true;
    bool ends_where_another_leads = false;
    std::function<void(const StandbyWords&)> heard = nullptr;
  };

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::PlannerService::Stub> stub_;
  // To any planner.
  const std::unique_ptr<v1::PlannerService::Stub> any_stub_;
  const bool knows_several_;
  Ways ways_;
  // Null: nobody knows.
  const Explain explain_;
  // Not to be asked before, by the steady clock.
  std::atomic<int64_t> next_explanation_ns_{0};
};

}  // namespace penstock
