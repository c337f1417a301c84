#include "planner/core/diagnose/step_barriers.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/types/span.h"

namespace penstock::core {
namespace {

// Of a step: waits shorter than this share of it are not looked into; starts closer than this are one.
constexpr double kShortWait = 1e-3;
constexpr double kSameStart = 2.5e-4;
// A barrier explains waits when less than this share of them is left.
constexpr double kUnexplained = 0.5;

class BarrierFinder {
 public:
  BarrierFinder(const TimelineStep& step, const std::vector<int64_t>& ready_ns, int64_t step_ns)
      : operations_(step.operations),
        ready_ns_(ready_ns),
        step_ns_(static_cast<double>(step_ns)),
        released_by_(step.operations.size(), -1) {}

  std::vector<int32_t> Find() {
    std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> same;
    for (size_t i = 0; i < operations_.size(); ++i) {
      const Operation& operation = operations_[i];
      if (operation.kind == OperationKind::kCollective || operation.kind == OperationKind::kLocal)
        same[{operation.name, operation.number}].push_back(static_cast<int32_t>(i));
    }
    for (auto& [key, all] : same) LookAmong(all);
    return std::move(released_by_);
  }

 private:
  // Nanoseconds that all of them have waited, had they followed what ended at a time by operation.
  template <typename EndOf>
  double WaitedNs(absl::Span<const int32_t> began, EndOf end_of) const {
    int64_t waited = 0;
    for (const int32_t operation : began)
      waited += std::max<int64_t>(0, operations_[operation].start_ns - end_of(operation));
    return static_cast<double>(waited);
  }

  void LookAmong(std::vector<int32_t>& all) {
    const auto start = [&](int32_t operation) { return operations_[operation].start_ns; };
    std::ranges::sort(all, {}, start);
    const auto close = static_cast<int64_t>(kSameStart * step_ns_);
    for (size_t begin = 0; begin < all.size();) {
      size_t end = begin + 1;
      while (end < all.size() && start(all[end]) - start(all[end - 1]) <= close) ++end;
      LookAt(all, absl::MakeConstSpan(all).subspan(begin, end - begin));
      begin = end;
    }
  }

  // `began`: at once. The last to come is among all that run the operation: it may have waited for more.
  void LookAt(const std::vector<int32_t>& all, absl::Span<const int32_t> began) {
    const double waited = WaitedNs(began, [&](int32_t operation) { return ready_ns_[operation]; });
    if (waited < kShortWait * step_ns_) return;
    int32_t last = -1;
    for (const int32_t operation : all) {
      if (ready_ns_[operation] > operations_[began.front()].start_ns) continue;
      if (last < 0 || ready_ns_[operation] > ready_ns_[last]) last = operation;
    }
    if (last < 0) return;
    if (WaitedNs(began, [&](int32_t) { return ready_ns_[last]; }) > kUnexplained * waited) return;
    for (const int32_t operation : began) released_by_[operation] = last;
  }

  const std::vector<Operation>& operations_;
  const std::vector<int64_t>& ready_ns_;
  const double step_ns_;
  std::vector<int32_t> released_by_;
};

}  // namespace

std::vector<int32_t> ReleasedBy(const TimelineStep& step, const std::vector<int64_t>& ready_ns,
                                int64_t step_ns) {
  return BarrierFinder(step, ready_ns, step_ns).Find();
}

}  // namespace penstock::core
