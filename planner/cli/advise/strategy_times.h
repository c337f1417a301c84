// What batches take on strategies: bounds at once, then a glance at those that may be fast, then a closer
// look at, and plans of, the few that are asked for. Choosing stages takes longer than a glance, so pipelines
// are looked at with even stages first.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/parallel/task_pool.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/advise/mesh_samples.h"
#include "planner/core/strategies/strategy_planner.h"

namespace penstock::cli {

// Times are nanoseconds.
class StrategyTimes {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // Both outlive this object.
  StrategyTimes(absl::Span<const v1::Batch> batches, TaskPool* threads)
      : batches_(batches), threads_(threads) {}

  // `base` is the job but for its strategies; its stages are chosen as it says. Possible errors:
  // INVALID_ARGUMENT (a batch is malformed), INTERNAL. That a strategy cannot hold a batch is none.
  absl::Status Look(const v1::JobSpec& base, absl::Span<const v1::Strategy> strategies);

  size_t strategies() const { return all_.size(); }
  size_t batches() const { return batches_.size(); }
  const v1::Strategy& strategy(size_t index) const { return all_[index].strategy; }

  // Has Expected know more: looks closer at first, and then plans. Possible errors: INTERNAL.
  absl::Status LookCloser(size_t strategy, size_t batch);
  // Of a plan, which is made at first. kNever: it cannot hold the batch. Possible errors: INTERNAL.
  absl::StatusOr<double> Of(size_t strategy, size_t batch);
  bool IsKnown(size_t strategy, size_t batch) const { return all_[strategy].known[batch] != 0; }
  // The same, where it is known; else what a plan will take at least, as far as was seen.
  double Expected(size_t strategy, size_t batch) const;
  double SumExpected(size_t strategy) const;
  // Of its plan.
  const std::vector<MeshSamples>& SamplesOf(size_t strategy, size_t batch) const {
    return all_[strategy].samples[batch];
  }

  // Why some strategy cannot hold some batch; OK where all can.
  absl::Status WhyNot() const;

 private:
  struct Figures {
    v1::Strategy strategy;
    // Null: its stages do not fit.
    std::unique_ptr<core::StrategyPlanner> planner;
    // By batch. No bound: it cannot hold the batch; no look: it is not needed, or nothing was seen.
    std::vector<double> bound_ns, glance_ns, closer_ns, time_ns;
    std::vector<char> known;
    std::vector<std::vector<MeshSamples>> samples;
    absl::Status why = absl::OkStatus();
  };

  // A glance is had of batches from `first` to `end`, where there is none yet.
  void GlanceAtAll(size_t first, size_t end);
  // Chooses stages of pipelines that the first so many batches show to be not far from the fastest, and looks
  // at these again.
  absl::Status ChooseStages(const v1::JobSpec& base, size_t batches);
  bool IsNearTheFastest(size_t strategy, size_t batches) const;
  double FastestExpected(size_t batch) const;
  absl::Status Bound(const v1::JobSpec& base, const v1::Strategy& strategy, core::Planner::Explain stages,
                     Figures* figures) const;
  static absl::Status KeepCause(const absl::Status& status, Figures* figures);
  // At all strategies but those whose bounds say that they are not the fastest.
  void GlanceAt(size_t batch);
  // Gives up those that are slow on the first so many batches.
  void DropSlow(size_t batches);

  const absl::Span<const v1::Batch> batches_;
  TaskPool* const threads_;
  std::vector<Figures> all_;
};

}  // namespace penstock::cli
