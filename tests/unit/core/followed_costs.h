// A job whose costs follow what its ranks measure, as the planner does it (service/engine/job_costs.cc): it
// fits them every four iterations, to the last eight, without the first of all.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "planner/core/calibrate/calibrate.h"
#include "tests/unit/core/ran_iterations.h"

namespace penstock::core {

class FollowedCosts {
 public:
  static constexpr int kBetweenFits = 4;

  explicit FollowedCosts(const v1::JobSpec& job) : ran_(job, job.profile(), 0), versions_{job.profile()} {}

  // So many iterations, a multiple of four, on ranks that take what `truth` says.
  void Train(const v1::CostProfile& truth, int iterations, double noise = 0) {
    for (int done = 0; done < iterations; done += kBetweenFits) {
      ran_.RunMore(versions_.back(), truth, kBetweenFits, noise);
      Fit();
    }
  }

  // The profile that was given, and every one that was fitted.
  const std::vector<v1::CostProfile>& versions() const { return versions_; }
  // Of the last version, on four more iterations that nothing was fitted to.
  double WorstErrorAhead(const v1::CostProfile& truth) {
    const size_t from = ran_.Observed().size();
    ran_.RunMore(versions_.back(), truth, kBetweenFits);
    return ran_.WorstError(versions_.back(), from);
  }

 private:
  void Fit() {
    const std::vector<ObservedIteration> all = ran_.Observed();
    const size_t first = std::max<size_t>(1, all.size() - std::min<size_t>(all.size(), 2 * kBetweenFits));
    const auto fitted = Calibrate(ran_.planner(), versions_.back(), absl::MakeConstSpan(all).subspan(first));
    ASSERT_TRUE(fitted.ok()) << fitted.status();
    if (fitted->has_value()) versions_.push_back((*fitted)->profile);
  }

  Ran ran_;
  std::vector<v1::CostProfile> versions_;
};

}  // namespace penstock::core
