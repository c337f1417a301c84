#include "worker/tracing/worker_tracing.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tracing/batch_trace.h"
#include "worker/metrics/activities.h"

namespace penstock::worker {
namespace {

int64_t RealTokens(const Program& program) {
  int64_t tokens = 0;
  for (const MicroBatch& micro_batch : program.micro_batches) {
    for (const uint32_t one : micro_batch.input_tokens) tokens += one;
    for (const uint32_t one : micro_batch.target_tokens) tokens += one;
  }
  return tokens;
}

int64_t ComputedTokens(const Program& program) {
  int64_t tokens = 0;
  for (const MicroBatch& micro_batch : program.micro_batches) tokens += micro_batch.computed_tokens;
  return tokens;
}

}  // namespace

TraceSpan WorkerTracing::SpanOf(const Program& program, uint64_t epoch) const {
  TraceSpan span = ChildSpan(TraceOfBatch(job_id_, program.iteration), "iteration");
  span.attributes = {{"penstock.job", job_id_},
                     {"penstock.iteration", static_cast<int64_t>(program.iteration)},
                     {"penstock.rank", static_cast<int64_t>(program.rank)},
                     {"penstock.replica", static_cast<int64_t>(program.replica)},
                     {"penstock.strategy", static_cast<int64_t>(program.strategy)},
                     {"penstock.epoch", static_cast<int64_t>(epoch)},
                     {"penstock.micro_batches", static_cast<int64_t>(program.micro_batches.size())},
                     {"penstock.real_tokens", RealTokens(program)},
                     {"penstock.computed_tokens", ComputedTokens(program)}};
  return span;
}

void WorkerTracing::OnIteration(const Program& program, const IterationResult& result, uint64_t epoch,
                                absl::Duration waited) const {
  if (sink_ == nullptr) return;
  TraceSpan span = SpanOf(program, epoch);
  span.start = absl::FromUnixNanos(result.started_unix_ns);
  span.end = span.start + absl::Nanoseconds(result.duration_ns);
  span.attributes.push_back({"penstock.measured_ns", result.duration_ns});
  ActivityTimes times = MeasuredActivities(program, result);
  Of(times, Activity::kProgramWait) = absl::ToInt64Nanoseconds(waited);
  for (size_t i = 0; i < times.size(); ++i)
    span.attributes.push_back({absl::StrCat("penstock.", kActivityNames[i], "_ns"), times[i]});
  if (result.peak_memory_bytes > 0)
    span.attributes.push_back({"penstock.peak_memory_bytes", result.peak_memory_bytes});
  sink_->Add(std::move(span));
}

void WorkerTracing::OnIterationFailed(const Program& program, uint64_t epoch, absl::Time began,
                                      absl::Time ended, const absl::Status& why) const {
  if (sink_ == nullptr) return;
  TraceSpan span = SpanOf(program, epoch);
  span.start = began;
  span.end = ended;
  span.status = why;
  sink_->Add(std::move(span));
}

}  // namespace penstock::worker
