// What a rank does, as spans in the traces of batches (common/tracing/batch_trace.h): for each program that
// it runs one, "iteration", beside those of the planner.
//
//   WorkerTracing tracing(exporter, "mix");      // null exporter: says nothing
//   tracing.OnIteration(program, result, /*epoch=*/3, waited);
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/tracing/trace_span.h"
#include "worker/program/program.h"
#include "worker/runtime/iteration_result.h"

namespace penstock::worker {

class WorkerTracing {
 public:
  // `sink` may be null, is not owned and must outlive this.
  WorkerTracing(SpanSink* sink, std::string job_id) : sink_(sink), job_id_(std::move(job_id)) {}

  // An iteration that has run. `waited`: for its program, before.
  void OnIteration(const Program& program, const IterationResult& result, uint64_t epoch,
                   absl::Duration waited) const;
  // One that has not. Times of day.
  void OnIterationFailed(const Program& program, uint64_t epoch, absl::Time began, absl::Time ended,
                         const absl::Status& why) const;

 private:
  TraceSpan SpanOf(const Program& program, uint64_t epoch) const;

  SpanSink* const sink_;
  const std::string job_id_;
};

}  // namespace penstock::worker
