#include "tests/integration/service/fake_worker.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "common/status/status_macros.h"

namespace penstock {

FakeWorker::FakeWorker(const std::string& address, std::string job_id, uint64_t incarnation)
    : client_(address), job_id_(std::move(job_id)), incarnation_(incarnation) {}

FakeWorker::~FakeWorker() { StopHeartbeats(); }

absl::Status FakeWorker::Register(int32_t wanted_rank, uint64_t first_iteration) {
  v1::RegisterWorkerRequest request;
  request.set_job_id(job_id_);
  request.set_incarnation(incarnation_);
  request.set_host("127.0.0.1");
  request.set_rank(wanted_rank);
  request.set_first_iteration(first_iteration);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::RegisterWorkerResponse response, client_.RegisterWorker(request));
  rank_ = response.rank();
  epoch_ = response.epoch();
  heartbeat_interval_ = absl::Milliseconds(response.heartbeat_interval_ms());
  return absl::OkStatus();
}

void FakeWorker::StartHeartbeats() {
  heartbeats_ = std::make_unique<Ticker>("heartbeat", heartbeat_interval_ / 4, [this] {
    auto answer = Heartbeat();
    if (!answer.ok()) return;
    MutexLock lock(&mutex_);
    last_heartbeat_ = *std::move(answer);
  });
}

void FakeWorker::StopHeartbeats() { heartbeats_.reset(); }

v1::HeartbeatResponse FakeWorker::last_heartbeat() const {
  MutexLock lock(&mutex_);
  return last_heartbeat_;
}

absl::StatusOr<v1::HeartbeatResponse> FakeWorker::Heartbeat(const std::string& failure, bool leaving) {
  v1::HeartbeatRequest request;
  request.set_job_id(job_id_);
  request.set_rank(rank_);
  request.set_incarnation(incarnation_);
  request.set_epoch(epoch_);
  if (rank_ == 0) request.set_rendezvous_address("127.0.0.1:29500");
  request.set_failure(failure);
  request.set_leaving(leaving);
  return client_.Heartbeat(request);
}

v1::StreamProgramsRequest FakeWorker::StreamRequest(uint64_t from) const {
  v1::StreamProgramsRequest request;
  request.set_job_id(job_id_);
  request.set_rank(rank_);
  request.set_incarnation(incarnation_);
  request.set_epoch(epoch_);
  request.set_from_iteration(from);
  request.set_takes_new_strategies(true);
  return request;
}

absl::Status FakeWorker::Work(uint64_t from, uint64_t count) {
  const auto stream = client_.StreamPrograms(StreamRequest(from), absl::Seconds(30));
  for (uint64_t i = 0; i < count; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const auto program, stream->Next());
    if (!program.has_value()) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(Report(*program));
    done_.push_back(program->iteration());
    hashes_.push_back(absl::BytesToHexString(program->content_hash()));
  }
  return absl::OkStatus();
}

absl::Status FakeWorker::Report(const v1::StreamProgramsResponse& program) {
  v1::ReportIterationRequest report;
  report.set_job_id(job_id_);
  report.set_rank(rank_);
  report.set_incarnation(incarnation_);
  report.set_epoch(epoch_);
  report.set_iteration(program.iteration());
  for (const v1::Instruction& instruction : program.program().instructions()) {
    v1::MeasuredInstruction* measured = report.add_instructions();
    measured->set_id(instruction.id());
    const double slowness = slowness_ ? slowness_(program.iteration(), instruction) : 1;
    measured->set_duration_ns(
        static_cast<int64_t>(slowness * static_cast<double>(instruction.expected_duration_ns())));
    report.set_duration_ns(report.duration_ns() + measured->duration_ns());
  }
  report.set_loss(0.5);
  return client_.ReportIteration(report).status();
}

}  // namespace penstock
