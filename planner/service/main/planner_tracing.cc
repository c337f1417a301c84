#include "planner/service/main/planner_tracing.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/tracing/batch_trace.h"

namespace penstock {
namespace {

void Describe(TraceSpan& span, const std::string& job_id, uint64_t iteration) {
  span.attributes.push_back({"penstock.job", job_id});
  span.attributes.push_back({"penstock.iteration", static_cast<int64_t>(iteration)});
}

TraceSpan PartOf(const std::string& job_id, uint64_t iteration, const char* name, absl::Time start,
                 absl::Time end) {
  TraceSpan span = ChildSpan(TraceOfBatch(job_id, iteration), name);
  span.start = start;
  span.end = end;
  Describe(span, job_id, iteration);
  return span;
}

std::vector<SpanAttribute> AttributesOf(const v1::Plan& plan) {
  int64_t micro_batches = 0;
  for (const v1::Replica& replica : plan.replicas()) micro_batches += replica.micro_batches_size();
  return {{"penstock.plan_hash", absl::BytesToHexString(plan.content_hash())},
          {"penstock.micro_batches", micro_batches},
          {"penstock.real_tokens", static_cast<int64_t>(plan.real_tokens())},
          {"penstock.computed_tokens", static_cast<int64_t>(plan.computed_tokens())},
          {"penstock.predicted_ns", plan.predicted().makespan_ns()},
          {"penstock.lower_bound_ns", plan.lower_bound_ns()}};
}

std::vector<SpanAttribute> AttributesOf(const v1::IterationSummary& summary) {
  return {{"penstock.real_tokens", static_cast<int64_t>(summary.real_tokens())},
          {"penstock.computed_tokens", static_cast<int64_t>(summary.computed_tokens())},
          {"penstock.micro_batches", static_cast<int64_t>(summary.micro_batches())},
          {"penstock.predicted_ns", summary.predicted_ns()},
          {"penstock.measured_ns", summary.measured_ns()},
          {"penstock.waited_for_program_ns", summary.waited_for_program_ns()},
          {"penstock.planned_ahead", static_cast<int64_t>(summary.planned_ahead())},
          {"penstock.loss", summary.loss()}};
}

void Append(std::vector<SpanAttribute> more, std::vector<SpanAttribute>* attributes) {
  for (SpanAttribute& one : more) attributes->push_back(std::move(one));
}

}  // namespace

void PlannerTracing::OnSubmitted(const Submission& submission) {
  if (absl::IsResourceExhausted(submission.status)) return;
  // What is wrong is said once, however many batches came with it.
  const uint64_t spans = submission.status.ok() ? submission.batches : 1;
  for (uint64_t i = 0; i < spans; ++i) {
    TraceSpan span = PartOf(submission.job_id, submission.first_iteration + i, "submit", submission.began,
                            submission.ended);
    span.kind = SpanKind::kServer;
    span.status = submission.status;
    span.attributes.push_back({"penstock.batches_of_call", static_cast<int64_t>(submission.batches)});
    if (submission.caller.has_value()) span.links.push_back(*submission.caller);
    sink_->Add(std::move(span));
  }
}

void PlannerTracing::OnPlanningTried(const PlanningTry& planning) {
  const auto part = [&](const char* name, absl::Time start, absl::Time end) {
    return PartOf(planning.job_id, planning.iteration, name, start, end);
  };
  sink_->Add(part("queue", planning.queued, planning.began));
  const bool made = planning.made != absl::InfiniteFuture();
  TraceSpan plan = part("plan", planning.began, made ? planning.made : planning.ended);
  if (planning.plan != nullptr) Append(AttributesOf(*planning.plan), &plan.attributes);
  if (!made) plan.status = planning.status;
  sink_->Add(std::move(plan));
  if (!made) return;
  TraceSpan verify = part("verify", planning.made, planning.ended);
  verify.status = planning.status;
  sink_->Add(std::move(verify));
}

void PlannerTracing::OnDelivered(const Delivery& delivery) {
  TraceSpan span = PartOf(delivery.job_id, delivery.iteration, "deliver", delivery.began, delivery.ended);
  span.attributes.push_back({"penstock.rank", static_cast<int64_t>(delivery.rank)});
  span.attributes.push_back({"penstock.bytes", static_cast<int64_t>(delivery.bytes)});
  sink_->Add(std::move(span));
}

void PlannerTracing::OnBatchEnded(const BatchEnd& end) {
  TraceSpan span = RootSpan(TraceOfBatch(end.job_id, end.iteration), "batch");
  span.start = end.accepted;
  span.end = end.ended;
  span.status = end.status;
  Describe(span, end.job_id, end.iteration);
  if (end.summary != nullptr) Append(AttributesOf(*end.summary), &span.attributes);
  sink_->Add(std::move(span));
}

}  // namespace penstock
