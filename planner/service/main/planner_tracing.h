// What becomes of a batch, as spans of its trace (common/tracing/batch_trace.h):
//
//   batch      from its submission until all ranks have reported it, or it cannot be planned
//     submit     the call of SubmitBatches that brought it; linked to the caller's span
//     queue      it waits for a planning thread
//     plan       its plan is made
//     verify     the plan is checked
//     deliver    a rank's stream is given its program; once for each rank
//
// Workers add what they do (worker/tracing). Each span has penstock.job and penstock.iteration.
#pragma once

#include <cstdint>
#include <string>

#include "common/tracing/trace_span.h"
#include "planner/service/engine/observer.h"
#include "planner/service/rpc/submission.h"

namespace penstock {

class PlannerTracing final : public EngineObserver {
 public:
  // `sink` is not owned and must outlive this.
  explicit PlannerTracing(SpanSink* sink) : sink_(sink) {}

  void OnPlanned(const absl::Status&, absl::Duration) override {}
  void OnIterationCompleted(const std::string&, const v1::IterationSummary&) override {}
  void OnPlanningTried(const PlanningTry& planning) override;
  void OnDelivered(const Delivery& delivery) override;
  void OnBatchEnded(const BatchEnd& end) override;

  // A call that finds no room yet leaves no span: it is made again, however long that takes.
  void OnSubmitted(const Submission& submission);

 private:
  SpanSink* const sink_;
};

}  // namespace penstock
