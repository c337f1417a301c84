// A job of 128 ranks for who looks at the planner's page: 8 stages x 16 replicas, planned by a real planner,
// with workers that heartbeat and report what each instruction would have taken on a machine that is up to a
// tenth slower than the plan. Two hosts have names that are markup.
//
//   watched_job PLANNER_ADDRESS JOB_ID ITERATIONS     # then heartbeats until its standard input ends
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/sync/ticker.h"
#include "penstock/client/planner_client.h"
#include "tests/unit/core/job_builder.h"

namespace penstock {
namespace {

constexpr uint32_t kStages = 8;
constexpr uint32_t kReplicas = 16;
constexpr uint32_t kRanks = kStages * kReplicas;
constexpr uint64_t kFirstIncarnation = 1000;
constexpr uint32_t kSamples = 320;
// Every so many iterations one has a validation, of so many samples.
constexpr uint64_t kValidatedEvery = 4;
constexpr uint32_t kValidationSamples = 32;

class WatchedJob {
 public:
  WatchedJob(const std::string& address, std::string id) : client_(address), id_(std::move(id)) {}

  absl::Status Start(uint64_t iterations);
  absl::Status Run(uint64_t iteration);
  // Of all ranks.
  void Heartbeat();

 private:
  absl::Status Register();
  // Many short samples and a few long ones, others in each iteration.
  v1::Batch BatchOf(uint64_t iteration);
  void AddSamples(uint64_t first, uint32_t count, v1::Batch& batch);
  absl::Status Report(const v1::StreamProgramsResponse& program, uint32_t rank);

  PlannerClient client_;
  const std::string id_;
  uint64_t epoch_ = 0;
  std::mt19937_64 random_{7};
};

void WatchedJob::AddSamples(uint64_t first, uint32_t count, v1::Batch& batch) {
  std::lognormal_distribution<double> length(5.0, 1.0);
  for (uint32_t i = 0; i < count; ++i) {
    v1::Sample* sample = batch.add_samples();
    sample->set_sample_id(first + i);
    sample->set_target_tokens(static_cast<uint32_t>(std::min(8.0 + length(random_), 500.0)));
  }
}

v1::Batch WatchedJob::BatchOf(uint64_t iteration) {
  v1::Batch batch;
  batch.set_iteration(iteration);
  AddSamples(iteration * kSamples, kSamples, batch);
  if (iteration % kValidatedEvery != 0) return batch;
  batch.mutable_validation()->set_iteration(iteration);
  AddSamples(0, kValidationSamples, *batch.mutable_validation());
  return batch;
}

absl::Status WatchedJob::Register() {
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    v1::RegisterWorkerRequest request;
    request.set_job_id(id_);
    request.set_incarnation(kFirstIncarnation + rank);
    request.set_rank(static_cast<int32_t>(rank));
    request.set_host(rank == 3   ? "<img/src=x/onerror=alert(1)>"
                     : rank == 4 ? "\"><script>alert(2)</script>"
                                 : absl::StrCat("10.0.", rank / kStages, ".", rank % kStages));
    PENSTOCK_ASSIGN_OR_RETURN(const v1::RegisterWorkerResponse response, client_.RegisterWorker(request));
    epoch_ = response.epoch();
  }
  return absl::OkStatus();
}

absl::Status WatchedJob::Start(uint64_t iterations) {
  v1::RegisterJobRequest job;
  *job.mutable_job() = core::GptJob(kStages, kReplicas, v1::POLICY_DYNAMIC);
  job.mutable_job()->set_job_id(id_);
  job.mutable_job()->mutable_planning()->set_effort(v1::EFFORT_FAST);
  job.mutable_job()->mutable_training()->set_iterations(iterations + 1);
  job.mutable_job()->set_heartbeat_timeout_ms(600'000);
  PENSTOCK_RETURN_IF_ERROR(client_.RegisterJob(job).status());
  v1::SubmitBatchesRequest batches;
  batches.set_job_id(id_);
  for (uint64_t iteration = 0; iteration <= iterations; ++iteration)
    *batches.add_batches() = BatchOf(iteration);
  PENSTOCK_RETURN_IF_ERROR(client_.SubmitBatches(batches).status());
  PENSTOCK_RETURN_IF_ERROR(Register());
  Heartbeat();
  return absl::OkStatus();
}

void WatchedJob::Heartbeat() {
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    v1::HeartbeatRequest request;
    request.set_job_id(id_);
    request.set_rank(rank);
    request.set_incarnation(kFirstIncarnation + rank);
    request.set_epoch(epoch_);
    if (rank == 0) request.set_rendezvous_address("127.0.0.1:29500");
    client_.Heartbeat(request).status().IgnoreError();
  }
}

absl::Status WatchedJob::Report(const v1::StreamProgramsResponse& program, uint32_t rank) {
  std::uniform_real_distribution<double> slowdown(1.0, 1.1);
  v1::ReportIterationRequest report;
  report.set_job_id(id_);
  report.set_rank(rank);
  report.set_incarnation(kFirstIncarnation + rank);
  report.set_epoch(epoch_);
  report.set_iteration(program.iteration());
  report.set_loss(rank == 0 ? 2.0 + 4.0 / static_cast<double>(program.iteration() + 1) : 0);
  report.set_gradient_norm(0.8);
  if (rank == 0) {
    v1::PartNorm* const part = report.add_part_norms();
    part->set_part(v1::MODEL_PART_ATTENTION);
    part->set_norm(0.8);
  }
  if (program.has_validation()) {
    report.mutable_validation()->set_loss(rank == 0 ? 3 : 0);
    report.mutable_validation()->set_duration_ns(1'000'000);
  }
  const double slower = slowdown(random_);
  for (const v1::Instruction& instruction : program.program().instructions()) {
    v1::MeasuredInstruction* measured = report.add_instructions();
    measured->set_id(instruction.id());
    measured->set_start_ns(
        static_cast<int64_t>(slower * static_cast<double>(instruction.expected_start_ns())));
    measured->set_duration_ns(
        static_cast<int64_t>(slower * static_cast<double>(instruction.expected_duration_ns())));
    report.set_duration_ns(std::max(report.duration_ns(), measured->start_ns() + measured->duration_ns()));
  }
  return client_.ReportIteration(report).status();
}

absl::Status WatchedJob::Run(uint64_t iteration) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    v1::StreamProgramsRequest request;
    request.set_job_id(id_);
    request.set_rank(rank);
    request.set_incarnation(kFirstIncarnation + rank);
    request.set_epoch(epoch_);
    request.set_from_iteration(iteration);
    const auto stream = client_.StreamPrograms(request, absl::Seconds(60));
    PENSTOCK_ASSIGN_OR_RETURN(const auto program, stream->Next());
    if (!program.has_value()) return absl::InternalError("the stream has ended");
    PENSTOCK_RETURN_IF_ERROR(Report(*program, rank));
  }
  return absl::OkStatus();
}

absl::Status Main(const std::string& address, const std::string& id, uint64_t iterations) {
  WatchedJob job(address, id);
  PENSTOCK_RETURN_IF_ERROR(job.Start(iterations));
  const Ticker heartbeats("heartbeat", absl::Seconds(1), [&job] { job.Heartbeat(); });
  for (uint64_t iteration = 0; iteration < iterations; ++iteration)
    PENSTOCK_RETURN_IF_ERROR(job.Run(iteration));
  std::puts("done");
  std::fflush(stdout);
  char ignored = 0;
  while (read(STDIN_FILENO, &ignored, 1) > 0) {
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: watched_job PLANNER_ADDRESS JOB_ID ITERATIONS\n", stderr);
    return 2;
  }
  const absl::Status status = penstock::Main(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10));
  if (!status.ok()) std::fprintf(stderr, "watched_job: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
