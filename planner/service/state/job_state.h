// What is true of a job: the fold of its events (proto/penstock/store/v1/job_log.proto).
//
//   JobState state(first_event);                // JobRegistered
//   for (const store::v1::Event& event : log) state.Apply(event);
//
// A pure function of the events: no clock, no threads, nothing is decided here. What is asked of it is what
// decisions are made from (engine/job.h); each decision becomes an event, and the event changes the state. So
// a planner that was killed has the same state again when it has read the same events. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/store/v1/job_log.pb.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/state/admission.h"
#include "planner/service/state/iteration_counter.h"
#include "planner/service/state/membership.h"
#include "planner/service/state/progress.h"
#include "planner/service/state/strategy_changes.h"
#include "planner/service/state/summary_history.h"

namespace penstock {

class JobState {
 public:
  static constexpr size_t kKeptSummaries = SummaryHistory::kKept;

  // The state after a job's first event.
  explicit JobState(const v1::JobSpec& spec, int64_t unix_ns = 0);
  // The state that was saved.
  explicit JobState(const store::v1::JobSnapshot& saved);

  // Of an event that was decided from this state; others may end the process.
  void Apply(const store::v1::Event& event);

  // All of it but changes of strategies: equal snapshots are equal states where the job has had none.
  store::v1::JobSnapshot Save() const;
  // Those, as events to be applied to the state that was saved: a log goes on with them behind a snapshot. In
  // the snapshot is the job as it was registered and prepared.
  std::vector<store::v1::Event> SaveChanges() const;

  // With all strategies that the job ever had, and with the typical samples of the last ones.
  const v1::JobSpec& spec() const { return spec_; }
  // As it was registered.
  v1::JobSpec RegisteredSpec() const;
  const StrategyChanges& strategies() const { return strategies_; }
  uint32_t ranks() const { return ranks_; }
  // Iterations beyond what the slowest rank has reported that are taken.
  uint64_t window() const { return window_; }
  int64_t registered_unix_ns() const { return registered_unix_ns_; }
  // When the last event happened.
  int64_t last_unix_ns() const { return last_unix_ns_; }

  // Not set before the stages are chosen.
  // Whether its stages are chosen.
  bool is_prepared() const { return !topologies_.empty(); }
  // Who is where, by strategy; empty until then.
  const std::vector<v1::Topology>& topologies() const { return topologies_; }
  bool draining() const { return draining_; }
  // It comes from a backup and no iteration was completed since: workers may be ahead of its batches.
  bool restored() const { return restored_; }
  // All is done that ever will be.
  bool finished() const { return finished_; }
  // Not empty: a batch that was accepted cannot be planned, for good.
  const std::string& planning_failure() const { return planning_failure_; }
  // Of planning, or of the epoch; empty when nothing failed.
  std::string failure() const;

  const Admission& admission() const { return admission_; }
  const Membership& membership() const { return membership_; }
  const Progress& progress() const { return progress_; }
  // The first iteration that is not planned, and none before it.
  uint64_t planned() const { return planned_.next(); }
  bool IsPlanned(uint64_t iteration) const { return planned_.Contains(iteration); }
  // Of the plan that was made; null: there is none, or it is forgotten.
  const store::v1::IterationPlanned* PlanOf(uint64_t iteration) const;
  // The first iteration whose batch is kept.
  uint64_t first_held() const { return first_held_; }
  // Planners that died while they planned the iteration with nothing beside it, as far as that is known.
  uint32_t TriesOf(uint64_t iteration) const;
  // The costs that an iteration is planned with; null: those of the specification.
  const store::v1::CostsRevised* CostsOf(uint64_t iteration) const;
  // Their version.
  uint64_t CostsVersionOf(uint64_t iteration) const;
  // Null: never revised.
  const store::v1::CostsRevised* LastCosts() const { return costs_.empty() ? nullptr : &costs_.back(); }
  // After the last iteration that was ever planned.
  uint64_t planned_end() const { return planned_end_; }
  // Ascending; the last kKeptSummaries.
  const std::deque<v1::IterationSummary>& summaries() const { return summaries_.summaries(); }

 private:
  void Apply(const store::v1::BatchesAccepted& event);
  void Apply(const store::v1::IterationPlanned& event);
  void Apply(const store::v1::PlanningTried& event);
  void Apply(const store::v1::WorkerRegistered& event);
  void Apply(const store::v1::IterationReported& event);
  void Apply(const store::v1::StrategiesChanged& event);
  void Restart(uint64_t first_iteration);
  void SumUp(uint64_t iteration);
  void ForgetOldIterations();
  void FinishIfDone();

  v1::JobSpec spec_;
  // Its planning alone: as it was registered, where a change of strategies has put other typical samples in.
  std::optional<v1::JobSpec> registered_planning_;
  StrategyChanges strategies_;
  uint32_t ranks_;
  uint64_t window_;
  // Iterations held after all ranks reported them: at least 64, and back to the older of the two checkpoints
  // that workers keep.
  uint64_t history_;
  int64_t registered_unix_ns_;
  int64_t last_unix_ns_;
  std::vector<v1::Topology> topologies_;
  bool draining_ = false;
  bool restored_ = false;
  bool finished_ = false;
  std::string planning_failure_;
  uint64_t first_held_;

  Admission admission_;
  IterationCounter planned_;
  Progress progress_;
  Membership membership_;
  // Of the iterations that are held.
  std::map<uint64_t, store::v1::IterationPlanned> plans_;
  // By iteration, then rank; of iterations that some rank has not reported.
  std::map<uint64_t, std::map<uint32_t, store::v1::IterationReported>> reports_;
  SummaryHistory summaries_;
  // By their first iteration; the first one is that of the oldest iteration that is held.
  std::deque<store::v1::CostsRevised> costs_;
  uint64_t planned_end_ = 0;
  // Not 0; of iterations without a plan.
  std::map<uint64_t, uint32_t> tries_;
};

// The state after all events. Possible errors: DATA_LOSS (not a log of a job, or of a newer version).
absl::StatusOr<JobState> ReplayJob(const std::optional<std::string>& snapshot,
                                   const std::vector<std::string>& events);

}  // namespace penstock
