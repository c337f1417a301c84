#include "tests/bench/service/training_job.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "tests/bench/bench_job.h"

namespace penstock::bench {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);

// Runs the call and adds what it took.
template <typename Call>
auto Timed(Latencies* latencies, Call call) {
  const absl::Time start = absl::Now();
  auto result = call();
  latencies->Add(absl::Now() - start);
  return result;
}

}  // namespace

TrainingJob::TrainingJob(const std::string& address, TrainingJobOptions options)
    : options_(std::move(options)), client_(address) {}

TrainingJob::~TrainingJob() { Stop().IgnoreError(); }

absl::Status TrainingJob::Start() {
  v1::RegisterJobRequest job;
  *job.mutable_job() = options_.spec;
  PENSTOCK_RETURN_IF_ERROR(client_.RegisterJob(job).status());
  const uint32_t world = static_cast<uint32_t>(RanksOf(options_.spec.mesh()));
  for (uint32_t rank = 0; rank < world; ++rank) {
    v1::RegisterWorkerRequest request;
    request.set_job_id(job_id());
    request.set_incarnation(rank + 1);
    request.set_host("127.0.0.1");
    request.set_rank(static_cast<int32_t>(rank));
    PENSTOCK_ASSIGN_OR_RETURN(const v1::RegisterWorkerResponse answer, client_.RegisterWorker(request));
    ranks_.push_back({.incarnation = rank + 1, .epoch = answer.epoch()});
  }
  for (uint32_t rank = 0; rank < world; ++rank) {
    v1::StreamProgramsRequest request;
    request.set_job_id(job_id());
    request.set_rank(rank);
    request.set_incarnation(ranks_[rank].incarnation);
    request.set_epoch(ranks_[rank].epoch);
    streams_.push_back(client_.StreamPrograms(request));
  }
  threads_.emplace_back([this] { Beat(); });
  threads_.emplace_back([this] { Feed(); });
  for (uint32_t rank = 0; rank < world; ++rank) threads_.emplace_back([this, rank] { Work(rank); });
  return absl::OkStatus();
}

absl::Status TrainingJob::Stop() {
  if (!stopped_.HasBeenNotified()) stopped_.Notify();
  for (const auto& stream : streams_) stream->Cancel();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  MutexLock lock(&mutex_);
  return first_error_;
}

void TrainingJob::Note(const absl::Status& status) {
  if (status.ok() || stopped_.HasBeenNotified()) return;
  MutexLock lock(&mutex_);
  first_error_.Update(status);
}

void TrainingJob::Beat() {
  do {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      v1::HeartbeatRequest beat;
      beat.set_job_id(job_id());
      beat.set_rank(rank);
      beat.set_incarnation(ranks_[rank].incarnation);
      beat.set_epoch(ranks_[rank].epoch);
      if (rank == 0) beat.set_rendezvous_address("127.0.0.1:1");
      Note(AnnotateError(Timed(&heartbeats_, [&] { return client_.Heartbeat(beat); }).status(), "Heartbeat"));
    }
  } while (Sleep(options_.heartbeat_interval));
}

absl::Status TrainingJob::SubmitWhatFits(uint64_t* next) {
  v1::GetJobRequest ask;
  ask.set_job_id(job_id());
  ask.set_from_iteration(~uint64_t{0});
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job, client_.GetJob(ask));
  for (; *next < job.status().completed_iteration() + options_.spec.look_ahead_window(); ++*next) {
    v1::SubmitBatchesRequest request;
    request.set_job_id(job_id());
    v1::Batch* batch = request.add_batches();
    *batch = options_.batch;
    core::SetIteration(*next, batch);
    PENSTOCK_RETURN_IF_ERROR(Timed(&submissions_, [&] { return client_.SubmitBatches(request); }).status());
  }
  return absl::OkStatus();
}

void TrainingJob::Feed() {
  uint64_t next = 0;
  do {
    Note(AnnotateError(SubmitWhatFits(&next), "SubmitBatches"));
  } while (Sleep(std::min(kPoll, options_.iteration)));
}

absl::Status TrainingJob::Report(uint32_t rank, const v1::StreamProgramsResponse& program) {
  v1::ReportIterationRequest report;
  report.set_job_id(job_id());
  report.set_rank(rank);
  report.set_incarnation(ranks_[rank].incarnation);
  report.set_epoch(ranks_[rank].epoch);
  report.set_iteration(program.iteration());
  report.set_duration_ns(absl::ToInt64Nanoseconds(options_.iteration));
  report.set_loss(1);
  for (const v1::Instruction& instruction : program.program().instructions()) {
    v1::MeasuredInstruction* measured = report.add_instructions();
    measured->set_id(instruction.id());
    measured->set_duration_ns(instruction.expected_duration_ns());
  }
  return AnnotateError(Timed(&reports_, [&] { return client_.ReportIteration(report); }).status(),
                       "ReportIteration");
}

absl::Status TrainingJob::WorkUntilStopped(uint32_t rank, ProgramStream& stream) {
  do {
    PENSTOCK_ASSIGN_OR_RETURN(const auto program, Timed(&waits_, [&] { return stream.Next(); }));
    if (!program.has_value()) return absl::InternalError("the stream ended before the job");
    if (!Sleep(options_.iteration)) break;
    PENSTOCK_RETURN_IF_ERROR(Report(rank, *program));
    if (rank == 0) ++iterations_;
  } while (!stopped_.HasBeenNotified());
  return absl::OkStatus();
}

void TrainingJob::Work(uint32_t rank) { Note(WorkUntilStopped(rank, *streams_[rank])); }

}  // namespace penstock::bench
