// What the dynamic policy is about to find, seen closer and closer for a part of its work.
//
//   DynamicLook look(space, job, tokens);
//   if (look.AtNs(Sight::kGlance) < ... && look.AtNs(Sight::kCloser) < ...) candidate = PlanDynamic(...);
//
// Which division into micro-batches is good hardly depends on where their rows are. So at a glance many are
// judged as if rows were divided evenly over the context ranks, which takes next to nothing, and the best of
// them are placed. A closer look tunes the best one and changes it for a while, as the search goes on to do
// with more of them: so it sees what a search makes of this mesh.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/search/candidate.h"
#include "planner/core/search/judge_starts.h"
#include "planner/core/search/sight.h"

namespace penstock::core {

class DynamicLook {
 public:
  // All must outlive it.
  DynamicLook(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens);

  // Nanoseconds; kInfeasibleNs: nothing that fits is seen. Of no worth when the space is stopped. What has
  // been seen is not looked at again.
  int64_t AtNs(Sight sight);

 private:
  // Judges these and more that are near the best, places the best, and keeps the best of them and of what has
  // been seen.
  void LookAt(std::vector<Start> starts);
  void Place(const std::vector<JudgedStart>& starts);
  void Tune();
  void Change();
  bool stopped() const { return space_.stop().stopped(); }

  const ScheduleSpace& space_;
  const Job& job_;
  absl::Span<const SampleTokens> tokens_;
  // The one that was seen to be the best.
  std::optional<Candidate> seen_;
  bool is_close_ = false;
};

}  // namespace penstock::core
