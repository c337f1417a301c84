#include "planner/service/engine/iteration_values.h"

#include <algorithm>
#include <utility>

namespace penstock {

size_t MemoryBytesOf(const google::protobuf::Message& message) { return message.SpaceUsedLong(); }

bool IsMeasured(const HeldIteration& iteration, size_t ranks) {
  if (iteration.batch == nullptr || iteration.plan == nullptr || iteration.reports.size() != ranks)
    return false;
  return std::ranges::all_of(iteration.reports, [](const ReportPtr& report) {
    return report->instructions_size() > 0 && report->duration_ns() > 0;
  });
}

void IterationValues::PutBatch(BatchPtr batch, int64_t planning_bytes) {
  Values& values = iterations_[batch->iteration()];
  if (values.batch != nullptr) return;
  const size_t bytes = MemoryBytesOf(*batch);
  values.batch = std::move(batch);
  values.batch_bytes = bytes;
  values.planning_bytes = planning_bytes;
  values.bytes += bytes;
  bytes_ += bytes;
}

void IterationValues::PutPlan(PackedPlanPtr plan) {
  Values& values = iterations_[plan->frame().iteration()];
  if (values.plan != nullptr) return;
  const size_t bytes = plan->bytes();
  values.plan = std::move(plan);
  values.bytes += bytes;
  bytes_ += bytes;
}

void IterationValues::PutReport(const v1::ReportIterationRequest& report) {
  Values& values = iterations_[report.iteration()];
  ReportPtr& kept = values.reports[report.rank()];
  if (kept != nullptr) return;
  kept = std::make_shared<v1::ReportIterationRequest>(report);
  const size_t bytes = MemoryBytesOf(report);
  values.bytes += bytes;
  bytes_ += bytes;
}

BatchPtr IterationValues::batch(uint64_t iteration) const {
  const auto found = iterations_.find(iteration);
  return found == iterations_.end() ? nullptr : found->second.batch;
}

PackedPlanPtr IterationValues::plan(uint64_t iteration) const {
  const auto found = iterations_.find(iteration);
  return found == iterations_.end() ? nullptr : found->second.plan;
}

int64_t IterationValues::planning_bytes(uint64_t iteration) const {
  const auto found = iterations_.find(iteration);
  return found == iterations_.end() ? 0 : found->second.planning_bytes;
}

std::vector<ReportPtr> IterationValues::reports(uint64_t iteration) const {
  std::vector<ReportPtr> reports;
  const auto found = iterations_.find(iteration);
  if (found == iterations_.end()) return reports;
  for (const auto& [rank, report] : found->second.reports) reports.push_back(report);
  return reports;
}

HeldIteration IterationValues::Held(uint64_t iteration) const {
  return {.batch = batch(iteration), .plan = plan(iteration), .reports = reports(iteration)};
}

void IterationValues::DropReportsFrom(uint64_t iteration) {
  for (auto it = iterations_.lower_bound(iteration); it != iterations_.end(); ++it) {
    for (const auto& [rank, report] : it->second.reports) {
      const size_t bytes = MemoryBytesOf(*report);
      it->second.bytes -= bytes;
      bytes_ -= bytes;
    }
    it->second.reports.clear();
  }
}

void IterationValues::Drop(Iterations::iterator first, Iterations::iterator last) {
  for (auto it = first; it != last; ++it) bytes_ -= it->second.bytes;
  iterations_.erase(first, last);
}

void IterationValues::DropBefore(uint64_t iteration) {
  Drop(iterations_.begin(), iterations_.lower_bound(iteration));
}

void IterationValues::DropRange(uint64_t first, uint64_t last) {
  if (first < last) Drop(iterations_.lower_bound(first), iterations_.lower_bound(last));
}

void IterationValues::Evict(uint64_t completed, size_t most_bytes) {
  while (bytes_ > most_bytes && !iterations_.empty() && iterations_.begin()->first < completed) {
    Drop(iterations_.begin(), std::next(iterations_.begin()));
  }
}

size_t IterationValues::BatchBytesFrom(uint64_t iteration) const {
  size_t bytes = 0;
  for (auto it = iterations_.lower_bound(iteration); it != iterations_.end(); ++it)
    bytes += it->second.batch_bytes;
  return bytes;
}

size_t IterationValues::PlanBytesFrom(uint64_t iteration) const {
  size_t bytes = 0;
  for (auto it = iterations_.lower_bound(iteration); it != iterations_.end(); ++it)
    if (it->second.plan != nullptr) bytes += it->second.plan->bytes();
  return bytes;
}

}  // namespace penstock
