// What passes take, and why: their stage, the work of their micro-batch, and their rank.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// A rank that takes `factor` times as long as its peers for the same work.
struct SlowRank {
  int32_t rank = 0;
  double factor = 1;
  // Half of the interval that holds the factor with 95 % confidence, relative to it.
  double uncertainty = 0;
};

// The time of a pass is that of its kind and model stage, times the work of its micro-batch, times the factor of its
// rank, times noise: fitted to logarithms by medians. A micro-batch has the same work on all stages of its replica, so
// that long samples are told from slow ranks. Where every pass says what was foreseen for its work, times are compared
// with that, and stages with each other.
class PassTimes {
 public:
  explicit PassTimes(const Timeline& timeline);

  // In the order in which they were found: what explains most first.
  const std::vector<SlowRank>& slow_ranks() const { return slow_; }
  double FactorOf(int32_t rank) const { return factors_[rank]; }
  // What a pass of its kind takes on its model stage with usual work, nanoseconds.
  double UsualNs(const Operation& pass) const;
  // The mean over the model stages of what passes of its kind take.
  double MeanOfStagesNs(OperationKind kind) const;
  // The work of its micro-batch, 1 the usual one.
  double WorkOf(size_t step, const Operation& pass) const;
  bool known_work() const { return known_work_; }
  // The standard deviations of the logarithms of work and of noise.
  double work_spread() const { return work_spread_; }
  double noise() const { return noise_; }

 private:
  // A pass, by what it is compared with.
  struct Row {
    int32_t rank = 0;
    int32_t slot = 0;
    int32_t work = 0;
    double log_ns = 0;
  };

  void ReadRows();
  int32_t SlotOf(OperationKind kind, int32_t model_stage) const;
  int32_t WorkIndex(size_t step, const Operation& pass) const;
  // By micro-batch: by how much the logarithm of each rank's passes is above what its stage and factor say.
  std::vector<std::map<int32_t, double>> ResidualsByWork() const;
  void FitUsual();
  void FitSpreads();
  // The one rank that explains most, if it explains enough; true when there was one.
  bool FindSlowRank();
  void FitWork();

  const Timeline& timeline_;
  bool known_work_ = false;
  int32_t model_stages_ = 0;
  std::vector<Row> rows_;
  int32_t works_ = 0;
  // By step: works of its micro-batches begin here, replica by replica.
  std::vector<int32_t> work_begin_;
  std::vector<int32_t> micro_batches_;
  // By kind and model stage: the logarithm of nanoseconds.
  std::vector<double> usual_;
  std::vector<double> factors_;
  std::vector<double> work_;
  std::vector<SlowRank> slow_;
  double work_spread_ = 0;
  double noise_ = 0;
};

}  // namespace penstock::core
