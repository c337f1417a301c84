// What passes take, and why: their stage, the work of their micro-batch, and their rank.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// A rank that takes `factor` times as long as its peers for the same work.
struct DiagnosedRank {
  int32_t rank = 0;
  double factor = 1;
  // Half of the interval that holds the factor with 95 % confidence, relative to it.
  double uncertainty = 0;
};

// What passes of a kind on a model stage took relative to what was foreseen.
struct ForeseenRatio {
  OperationKind kind = OperationKind::kForward;
  int32_t model_stage = 0;
  double ratio = 1;
  // Of the time of all passes.
  double share = 0;
};

// The time of a pass is that of its kind and model stage, times the work of its micro-batch, times the factor
// of its rank, times noise: fitted to logarithms by medians. A micro-batch has the same work on all stages of
// its replica, so that long samples are told from slow ranks. Where every pass says what was foreseen for its
// work, times are compared with that, and stages with each other; what all of several ranks of a stage have
// in common is no rank's, but foreseen wrongly. Time in which others had a rank's core, as far as that is
// known, counts as it does on the other ranks. Of stage groups that say what each rank computed, that is what
// tells slow ranks; what their passes take is that of the slowest of them.
class PassTimes {
 public:
  explicit PassTimes(const Timeline& timeline);

  // In the order in which they were found: what explains most first.
  const std::vector<DiagnosedRank>& slow_ranks() const { return slow_; }
  // By which its passes are longer: of its group's slowest rank, where that is told by what ranks computed.
  double FactorOf(int32_t rank) const { return group_factors_[rank]; }
  // What a pass of its kind takes on its model stage with usual work, nanoseconds.
  double UsualNs(const Operation& pass) const;
  // With known work: what was foreseen, times the mean of what passes of its kind and model stage took
  // relative to that.
  double MeanNs(const Operation& pass) const;
  // The mean over the model stages of what passes of its kind take.
  double MeanOfStagesNs(OperationKind kind) const;
  // The work of its micro-batch, 1 the usual one.
  double WorkOf(size_t step, const Operation& pass) const;
  bool known_work() const { return known_work_; }
  // With known work: of each kind and model stage that has passes.
  std::vector<ForeseenRatio> ForeseenRatios() const;
  // What a pass would have taken with as much of a core as passes usually have.
  double WithUsualCoreNs(const Operation& pass) const {
    return static_cast<double>(pass.duration_ns) * pass.core_share / usual_core_share_;
  }
  // With known work: the median over passes of what they took relative to what was foreseen.
  double foreseen_factor() const { return foreseen_factor_; }
  // The standard deviations of the logarithms of work and of noise.
  double work_spread() const { return work_spread_; }
  double noise() const { return noise_; }

 private:
  // The forward passes of a micro-batch on a rank and model stage, or its backward passes: however they are
  // split.
  struct Row {
    int32_t rank = 0;
    int32_t slot = 0;
    int32_t work = 0;
    // What tells slow ranks.
    double ns = 0;
    double expected_ns = 0;
    double log_ns = 0;
    // What the passes took, with waiting in a stage group.
    double whole_ns = 0;
    double expected_whole_ns = 0;
  };
  // Logarithms by rank.
  using OfRanks = std::map<int32_t, double>;

  void FindUsualCoreShare();
  void CountWorks();
  void ReadRows();
  int32_t SlotOf(bool forward, int32_t model_stage) const { return 2 * model_stage + (forward ? 0 : 1); }
  int32_t KindSlotOf(OperationKind kind, int32_t model_stage) const;
  int32_t WorkIndex(size_t step, const Operation& pass) const;
  // By micro-batch: by how much each rank's passes are above what their stage and the rank's factor say.
  std::vector<OfRanks> ResidualsByWork() const;
  void FitUsual();
  // `work`: by micro-batch, a logarithm.
  void FitUsualWithout(absl::Span<const double> work);
  void FitSpreads();
  // The one rank that explains most, if it explains enough; true when there was one.
  bool FindSlowRank();
  void FitWork();
  void AddWhatStagesShare();
  // Once slow ranks are known.
  void FindGroupFactors();
  // Once slow ranks and work are known.
  void FitUsualOfKinds();

  const Timeline& timeline_;
  bool known_work_ = false;
  int32_t model_stages_ = 0;
  std::vector<Row> rows_;
  int32_t works_ = 0;
  // By step: works of its micro-batches begin here, replica by replica.
  std::vector<int32_t> work_begin_;
  std::vector<int32_t> micro_batches_;
  // By slot: the logarithm of nanoseconds, or of the ratio to what was foreseen; and the same by kind and
  // model stage.
  std::vector<double> usual_;
  std::vector<double> usual_of_kinds_;
  std::vector<double> mean_of_kinds_;
  std::vector<double> foreseen_of_kinds_;
  // Nanoseconds.
  std::vector<double> measured_of_kinds_;
  std::vector<double> factors_;
  std::vector<double> group_factors_;
  std::vector<double> work_;
  std::vector<DiagnosedRank> slow_;
  double work_spread_ = 0;
  double noise_ = 0;
  double foreseen_factor_ = 1;
  double usual_core_share_ = 1;
};

}  // namespace penstock::core
