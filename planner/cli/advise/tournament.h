// Finds the fastest candidates by planning sample batches with them, in three rounds of successive halving
// (Jamieson and Talwalkar 2016): all on one batch with effort fast (sharded optimizer state only where memory
// binds without), the better quarter on all batches with effort fast, the best of these on all batches with
// effort normal. Stages of STAGE_SPLIT_AUTO are balanced by time in the first rounds, and chosen by planning
// in the last; those of stage groups that may be among the best, already at the end of the first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/advise/candidates.h"
#include "planner/core/planner.h"

namespace penstock::cli {

// What a candidate's plans promise, summed over the batches that it was tried on.
struct Trial {
  Candidate candidate;
  bool feasible = true;
  // Why not, with flags named.
  std::string reason = {};
  int batches = 0;
  v1::Effort effort = v1::EFFORT_FAST;
  int64_t makespan_ns = 0;
  int64_t lower_bound_ns = 0;
  uint64_t real_tokens = 0;
  uint64_t computed_tokens = 0;
  // Of the fullest rank.
  int64_t peak_memory_bytes = 0;
  // Computed tokens times layers, all and those recomputed (in full or in part).
  double layer_tokens = 0;
  double recomputed_layer_tokens = 0;
  // Something was recomputed, or waited for memory.
  bool memory_binds = false;
  // Of the first batch: the family of schedules that was taken, and the stages.
  v1::Schedule schedule = v1::SCHEDULE_UNSPECIFIED;
  std::vector<uint32_t> layers_per_stage = {};
  // Of another trial, to be taken in place of a choice of its own.
  std::optional<v1::Topology> stages = {};
  // What planned it, for rounds that go on with the same stages and effort.
  std::shared_ptr<const core::Planner> planner = nullptr;

  double tokens_per_second() const;
  // makespan / lower bound - 1.
  double gap() const;
  double padding_efficiency() const;
  // Share of the layers' work that is recomputed.
  double recompute_share() const;
};

struct TournamentOptions {
  // Candidates in the last round.
  int finalists = 10;
  int threads = 1;
  // Called now and then, never at the same time: round 1 to 3, candidates done and all of the round.
  std::function<void(int round, size_t done, size_t all)> progress = [](int, size_t, size_t) {};
};

struct TournamentResult {
  // Fastest first.
  std::vector<Trial> finalists;
  // Dropped in round 1 or 2, or not planned at all because they cannot differ from a simpler one; in the
  // order of the candidates.
  std::vector<Trial> dropped;
  // Has no plan for a batch that it was tried on; in the order of the candidates.
  std::vector<Trial> infeasible;
};

// The answer does not depend on the number of threads. `batches` is not empty. Possible errors: INTERNAL (a
// plan breaks a rule), and what is wrong with every candidate alike (the profile, a sample).
absl::StatusOr<TournamentResult> RunTournament(const v1::JobSpec& base,
                                               const std::vector<Candidate>& candidates,
                                               const std::vector<v1::Batch>& batches,
                                               const TournamentOptions& options);

}  // namespace penstock::cli
