// A planner service for tests, on a free port of the loopback interface: answers as the test tells it to and
// keeps what it was asked. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "penstock/v1/planner_service.grpc.pb.h"

namespace penstock::worker {

class FakePlanner final : public v1::PlannerService::Service {
 public:
  // Listens on `port`; 0: any free one.
  explicit FakePlanner(int port = 0, const std::shared_ptr<grpc::ServerCredentials>& credentials =
                                         grpc::InsecureServerCredentials());
  // Ends open calls at once.
  ~FakePlanner() override;

  std::string address() const;
  int port() const { return port_; }

  // What registration answers from now on.
  void SetRegistration(const grpc::Status& status, const v1::RegisterWorkerResponse& response = {});
  // What heartbeats answer from now on.
  void SetHeartbeat(const grpc::Status& status, const v1::HeartbeatResponse& response = {});
  // As the planner does: once a worker has reported a failure, the epoch has failed.
  void FailEpochWhenToldOfAFailure();
  // What reports answer from now on.
  void SetReport(const grpc::Status& status);
  // What GetJob answers from now on.
  void SetJob(const grpc::Status& status, const v1::GetJobResponse& response = {});
  // Sends a program to whoever streams from its iteration.
  void AddProgram(const v1::StreamProgramsResponse& program);
  // Ends streams, open and later ones, after the programs that are there.
  void EndPrograms(const grpc::Status& status);

  // Block until the condition holds; false when it does not within 20 s.
  bool WaitForReports(size_t count);
  // Reports that came in, refused ones too.
  bool WaitForReportAttempts(size_t count);
  bool WaitForHeartbeats(size_t count);
  bool WaitForStreams(size_t count);

  std::vector<v1::ReportIterationRequest> reports();
  std::vector<v1::HeartbeatRequest> heartbeats();
  std::vector<v1::RegisterWorkerRequest> registrations();
  std::vector<v1::StreamProgramsRequest> stream_requests();

  grpc::Status RegisterWorker(grpc::ServerContext*, const v1::RegisterWorkerRequest*,
                              v1::RegisterWorkerResponse*) override;
  grpc::Status Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest*, v1::HeartbeatResponse*) override;
  grpc::Status ReportIteration(grpc::ServerContext*, const v1::ReportIterationRequest*,
                               v1::ReportIterationResponse*) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobResponse*) override;
  grpc::Status StreamPrograms(grpc::ServerContext*, const v1::StreamProgramsRequest*,
                              grpc::ServerWriter<v1::StreamProgramsResponse>*) override;

 private:
  template <typename Condition>
  bool WaitFor(Condition condition);

  Mutex mutex_;
  CondVar changed_;
  grpc::Status register_status_;
  v1::RegisterWorkerResponse register_response_;
  grpc::Status heartbeat_status_;
  v1::HeartbeatResponse heartbeat_response_;
  bool fail_when_told_ = false;
  grpc::Status report_status_;
  grpc::Status job_status_;
  v1::GetJobResponse job_;
  std::deque<v1::StreamProgramsResponse> programs_;
  bool programs_ended_ = false;
  grpc::Status stream_status_;
  bool shutting_down_ = false;
  size_t streams_ = 0;
  std::vector<v1::StreamProgramsRequest> stream_requests_;
  std::vector<v1::RegisterWorkerRequest> registrations_;
  std::vector<v1::HeartbeatRequest> heartbeats_;
  std::vector<v1::ReportIterationRequest> reports_;
  size_t report_attempts_ = 0;

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace penstock::worker
