// `penstock up --auto-tune K`: which way to train is measured next, and which has won. Knows no processes.
//
//   AutoTune tune({.ways = 3, .iterations = 8});
//   ... the run begins on the way that it was given, for tune.FirstIterations(...) ...
//   PENSTOCK_RETURN_IF_ERROR(tune.Search(measured_run, threads, progress));
//   tune.Take(its iterations);
//   while (tune.NextTrial()) { ... train tune.current().way for `iterations` ...; tune.Take(...); }
//   tune.winner()
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/advise/candidates.h"
#include "planner/cli/advise/measured_run.h"
#include "planner/cli/recorded_flags.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {

struct AutoTuneOptions {
  // Besides the one that the run was given.
  uint32_t ways = 0;
  // Of each.
  uint64_t iterations = 8;
};

// Of one way, milliseconds.
struct TriedWay {
  Candidate way;
  // Mean of the batches that all ways are compared on, by the costs that were measured before.
  double planned_ms = 0;
  // Medians of its own iterations, without the first ones, and of measured / planned.
  uint64_t iterations = 0;
  double planned_then_ms = 0;
  double measured_ms = 0;
  double measured_by_planned = 1;
  // It could not be run: why.
  std::string failure = {};

  // Of the batches that all are compared on: what is planned for them, times what its iterations took of what
  // was planned for those. Batches differ, so that measured times of two ways cannot be compared alone.
  double expected_ms() const { return planned_ms * measured_by_planned; }
};

class AutoTune {
 public:
  explicit AutoTune(const AutoTuneOptions& options) : options_(options) {}

  // Of the way that the run begins with: until costs are fitted (docs/costs.md), and as many as of each
  // other.
  static uint64_t FirstIterations(const AutoTuneOptions& options, bool fixed_costs);
  // Iterations that a run of `iterations` from `first` must have, so that one is left for the winner.
  // Possible errors: INVALID_ARGUMENT (names --iterations).
  static absl::Status CheckLength(const AutoTuneOptions& options, bool fixed_costs, uint64_t first,
                                  uint64_t iterations);

  // Finds the ways that are planned to be the fastest, with the costs and the batches of the run. Possible
  // errors: those of AdviseRun.
  absl::Status Search(const MeasuredRun& run, int threads,
                      const std::function<void(int round, size_t done, size_t all)>& progress);

  // What the current way's iterations took, ascending.
  void Take(const std::vector<v1::IterationSummary>& iterations);
  // The current way cannot be run.
  void TakeFailure(const std::string& why);

  // Goes to the next way; false: all have been tried.
  bool NextTrial();
  size_t trial() const { return current_; }
  // Those that are tried, the run's own first; empty before Search.
  const std::vector<TriedWay>& tried() const { return tried_; }
  const TriedWay& current() const { return tried_[current_]; }

  // The way that is expected to be the fastest: the run's own unless another is more than a per cent faster.
  const TriedWay& winner() const;
  // Whether that is the run's own.
  bool stays() const { return &winner() == &tried_.front(); }

  // {"ways": [...], "winner": 1}; the latter once all have been tried.
  nlohmann::ordered_json ToJson() const;

 private:
  const AutoTuneOptions options_;
  std::vector<TriedWay> tried_;
  size_t current_ = 0;
  bool done_ = false;
};

// "pp 1 dp 2, policy dynamic, ...: planned 1294.8 ms", and behind its trial what was measured.
std::string DescribeTrial(const TriedWay& tried);

// `full` on another way; recompute and layout are left to planning.
UpOptions OnWay(const UpOptions& full, const Candidate& way);
// The flags of a run that has ended its search; and those of one that goes on another way.
FlagValues FlagsWithoutSearch(FlagValues flags);
FlagValues FlagsOnWay(FlagValues flags, const Candidate& way);

}  // namespace penstock::cli
