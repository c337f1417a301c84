#include "tests/unit/worker/agent/fake_planner.h"

#include <gtest/gtest.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace penstock::worker {

FakePlanner::FakePlanner(int port, const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  heartbeat_response_.set_state(v1::EPOCH_STATE_FORMING);
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), credentials, &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  EXPECT_NE(server_, nullptr);
}

FakePlanner::~FakePlanner() {
  {
    MutexLock lock(&mutex_);
    shutting_down_ = true;
    changed_.SignalAll();
  }
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

std::string FakePlanner::address() const { return absl::StrCat("127.0.0.1:", port_); }

void FakePlanner::SetRegistration(const grpc::Status& status, const v1::RegisterWorkerResponse& response) {
  MutexLock lock(&mutex_);
  register_status_ = status;
  register_response_ = response;
}

void FakePlanner::FailEpochWhenToldOfAFailure() {
  MutexLock lock(&mutex_);
  fail_when_told_ = true;
}

void FakePlanner::SetHeartbeat(const grpc::Status& status, const v1::HeartbeatResponse& response) {
  MutexLock lock(&mutex_);
  heartbeat_status_ = status;
  heartbeat_response_ = response;
}

void FakePlanner::SetReport(const grpc::Status& status) {
  MutexLock lock(&mutex_);
  report_status_ = status;
}

void FakePlanner::AddProgram(const v1::StreamProgramsResponse& program) {
  MutexLock lock(&mutex_);
  programs_.push_back(program);
  changed_.SignalAll();
}

void FakePlanner::SetJob(const grpc::Status& status, const v1::GetJobResponse& response) {
  MutexLock lock(&mutex_);
  job_status_ = status;
  job_ = response;
}

void FakePlanner::EndPrograms(const grpc::Status& status) {
  MutexLock lock(&mutex_);
  programs_ended_ = true;
  stream_status_ = status;
  changed_.SignalAll();
}

template <typename Condition>
bool FakePlanner::WaitFor(Condition condition) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  MutexLock lock(&mutex_);
  while (!condition() && absl::Now() < deadline) changed_.WaitWithTimeout(&mutex_, deadline - absl::Now());
  return condition();
}

bool FakePlanner::WaitForReports(size_t count) {
  return WaitFor([&] { return reports_.size() >= count; });
}

bool FakePlanner::WaitForReportAttempts(size_t count) {
  return WaitFor([&] { return report_attempts_ >= count; });
}

bool FakePlanner::WaitForHeartbeats(size_t count) {
  return WaitFor([&] { return heartbeats_.size() >= count; });
}

bool FakePlanner::WaitForStreams(size_t count) {
  return WaitFor([&] { return streams_ >= count; });
}

std::vector<v1::ReportIterationRequest> FakePlanner::reports() {
  MutexLock lock(&mutex_);
  return reports_;
}

std::vector<v1::HeartbeatRequest> FakePlanner::heartbeats() {
  MutexLock lock(&mutex_);
  return heartbeats_;
}

std::vector<v1::RegisterWorkerRequest> FakePlanner::registrations() {
  MutexLock lock(&mutex_);
  return registrations_;
}

grpc::Status FakePlanner::RegisterWorker(grpc::ServerContext*, const v1::RegisterWorkerRequest* request,
                                         v1::RegisterWorkerResponse* response) {
  MutexLock lock(&mutex_);
  registrations_.push_back(*request);
  *response = register_response_;
  return register_status_;
}

grpc::Status FakePlanner::Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                                    v1::HeartbeatResponse* response) {
  MutexLock lock(&mutex_);
  heartbeats_.push_back(*request);
  changed_.SignalAll();
  if (fail_when_told_ && !request->failure().empty()) {
    heartbeat_response_.set_state(v1::EPOCH_STATE_FAILED);
    heartbeat_response_.set_failure("rank 1 reported: " + request->failure());
  }
  *response = heartbeat_response_;
  return heartbeat_status_;
}

grpc::Status FakePlanner::ReportIteration(grpc::ServerContext*, const v1::ReportIterationRequest* request,
                                          v1::ReportIterationResponse*) {
  MutexLock lock(&mutex_);
  ++report_attempts_;
  if (report_status_.ok()) reports_.push_back(*request);
  changed_.SignalAll();
  return report_status_;
}

std::vector<v1::StreamProgramsRequest> FakePlanner::stream_requests() {
  MutexLock lock(&mutex_);
  return stream_requests_;
}

grpc::Status FakePlanner::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                 v1::GetJobResponse* response) {
  MutexLock lock(&mutex_);
  *response = job_;
  response->mutable_status()->set_job_id(request->job_id());
  return job_status_;
}

grpc::Status FakePlanner::StreamPrograms(grpc::ServerContext*, const v1::StreamProgramsRequest* request,
                                         grpc::ServerWriter<v1::StreamProgramsResponse>* writer) {
  uint64_t next = request->from_iteration();
  MutexLock lock(&mutex_);
  ++streams_;
  stream_requests_.push_back(*request);
  changed_.SignalAll();
  size_t index = 0;
  for (;;) {
    while (!shutting_down_ && !programs_ended_ && index >= programs_.size()) {
      changed_.WaitWithTimeout(&mutex_, absl::Seconds(20));
    }
    if (shutting_down_) return {grpc::StatusCode::UNAVAILABLE, "shutting down"};
    if (index >= programs_.size()) return stream_status_;
    const v1::StreamProgramsResponse program = programs_[index++];
    if (program.iteration() != next) continue;
    ++next;
    if (!writer->Write(program)) return {grpc::StatusCode::CANCELLED, "the reader is gone"};
  }
}

}  // namespace penstock::worker
