#include "worker/agent/program_reader.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/backoff/backoff.h"
#include "common/status/status_macros.h"
#include "common/sync/thread_name.h"
#include "worker/agent/call_times.h"

namespace penstock::worker {
namespace {

// Programs that are held here; the rest waits at the planner.
constexpr size_t kReadAhead = 4;

}  // namespace

ProgramReader::ProgramReader(PlannerLink& link, WorkerIdentity self, JobConfig job, uint64_t first_iteration,
                             FailureHandler on_failure)
    : link_(link),
      self_(std::move(self)),
      job_(std::move(job)),
      on_failure_(std::move(on_failure)),
      queue_(kReadAhead),
      thread_([this, first_iteration] { Run(first_iteration); }) {}

ProgramReader::~ProgramReader() {
  Stop(absl::CancelledError("the program reader has ended"));
  Join();
}

void ProgramReader::Join() {
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<NextProgram> ProgramReader::Next() {
  absl::Duration waited;
  PENSTOCK_ASSIGN_OR_RETURN(NextProgram next, queue_.Pop(&waited));
  next.waited = waited;
  return next;
}

std::shared_ptr<const Program> ProgramReader::Upcoming() const {
  const std::optional<NextProgram> next = queue_.Front();
  return next.has_value() ? next->program : nullptr;
}

void ProgramReader::Stop(const absl::Status& reason) {
  queue_.Close(reason);
  MutexLock lock(&mutex_);
  stopped_ = true;
  if (stream_ != nullptr) stream_->Cancel();
  changed_.SignalAll();
}

bool ProgramReader::WaitToRetry(absl::Duration time) {
  const absl::Time deadline = absl::Now() + time;
  MutexLock lock(&mutex_);
  while (!stopped_ && absl::Now() < deadline) changed_.WaitWithTimeout(&mutex_, deadline - absl::Now());
  return !stopped_;
}

absl::Status ProgramReader::Take(Program program, uint64_t& next_iteration) {
  if (program.iteration != next_iteration || program.rank != self_.rank) {
    return absl::InternalError(absl::StrCat("the planner sent iteration ", program.iteration, " of rank ",
                                            program.rank, " instead of iteration ", next_iteration,
                                            " of rank ", self_.rank));
  }
  PENSTOCK_RETURN_IF_ERROR(queue_.Push(
      {.finished = false, .program = std::make_shared<const Program>(std::move(program)), .waited = {}}));
  ++next_iteration;
  return absl::OkStatus();
}

absl::Status ProgramReader::ReadStream(uint64_t& next_iteration) {
  const std::unique_ptr<ProgramStream> stream = link_.StreamPrograms(self_, &job_, next_iteration);
  {
    MutexLock lock(&mutex_);
    if (stopped_) return absl::CancelledError("stopped");
    stream_ = stream.get();
  }
  absl::Status status;
  for (bool more = true; more && status.ok();) {
    absl::StatusOr<std::optional<Program>> program = stream->Read();
    status = program.status();
    more = program.ok() && program->has_value();
    if (more) status = Take(**std::move(program), next_iteration);
  }
  MutexLock lock(&mutex_);
  stream_ = nullptr;
  return status;
}

void ProgramReader::Run(uint64_t next_iteration) {
  NameThisThread("programs");
  Backoff retry(kFirstRetry, kLongestRetry);
  for (;;) {
    const uint64_t first = next_iteration;
    const absl::Status status = ReadStream(next_iteration);
    if (next_iteration > first) retry.Reset();
    if (status.ok()) {
      queue_.Push({.finished = true, .program = {}, .waited = {}}).IgnoreError();
      return;
    }
    const bool transient = absl::IsUnavailable(status) || absl::IsCancelled(status);
    if (transient && WaitToRetry(retry.Next())) continue;
    if (!transient) on_failure_(status);
    return;
  }
}

}  // namespace penstock::worker
