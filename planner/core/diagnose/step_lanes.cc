#include "planner/core/diagnose/step_lanes.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace penstock::core {
namespace {

// Operations of a rank that overlap by more than this share of the shorter one belong together.
constexpr double kTogether = 0.3;

// A pass and communication that overlap do not: one of them has an order of its own, or times are not exact.
bool AreTogether(const Operation& one, const Operation& other) {
  if (IsPassKind(one.kind) != IsPassKind(other.kind)) return false;
  const int64_t overlap = std::min(one.end_ns(), other.end_ns()) - std::max(one.start_ns, other.start_ns);
  return static_cast<double>(overlap) >
         kTogether * static_cast<double>(std::min(one.duration_ns, other.duration_ns));
}

}  // namespace

StepLanes::StepLanes(const Timeline& timeline, const Communication& communication, const TimelineStep& step)
    : asynchronous_(RunsBesidePasses(timeline, step)) {
  const std::vector<Operation>& operations = step.operations;
  for (size_t i = 0; i < operations.size(); ++i) {
    const bool beside = !IsPassKind(operations[i].kind) && communication.IsAsynchronous(operations[i].name);
    asynchronous_[i] = asynchronous_[i] || beside;
  }
  std::vector<int32_t> order(operations.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t operation) { return operations[operation].start_ns; });
  for (const int32_t operation : order) Add(operations, operation);
}

void StepLanes::Add(const std::vector<Operation>& operations, int32_t operation) {
  const Operation& added = operations[operation];
  std::vector<Together>& lane = lanes_[{added.rank, IsAsynchronous(operation) ? added.name : -1}];
  const auto is_together = [&](int32_t other) { return AreTogether(added, operations[other]); };
  const bool together =
      !lane.empty() && !IsAsynchronous(operation) && std::ranges::any_of(lane.back().operations, is_together);
  if (!together) lane.emplace_back();
  lane.back().operations.push_back(operation);
  lane.back().end_ns = std::max(lane.back().end_ns, added.end_ns());
  ++counts_[{added.rank, added.kind}];
}

size_t StepLanes::CountOf(int32_t rank, OperationKind kind) const {
  const auto found = counts_.find({rank, kind});
  return found == counts_.end() ? 0 : found->second;
}

}  // namespace penstock::core
