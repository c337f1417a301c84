// Strategies of several meshes side by side that could be fast for batches such as these, and those that use
// ranks which no single mesh uses well: 60 as cp 32 + cp 16 + cp 8 + cp 4.
//
// Every replica that there can be is reckoned with (degrees as MakeCandidates has them, but they need not
// divide the ranks; tensor groups inside a node), in core/strategies/strategy_proposal.h: for the mean of the
// batches up to each length, and for each batch by itself. What is proposed is to be planned, by whoever
// asks.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/parallel/task_pool.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/advise/candidates.h"

namespace penstock::cli {

struct SideBySideLimits {
  // Degrees that are given, of every mesh. With replicas given nothing is proposed: meshes differ in them.
  Given given = {};
  // Pipelines and context ranks of more than so many are left out; 0: as many as can be.
  uint32_t most_pipeline = 0;
  uint32_t most_context = 0;
  // Meshes side by side, and strategies, at most.
  int meshes = 4;
  int strategies = 12;
};

// The way to train that all strategies of a job share: its parameters live in shares, and no strategy is
// given nor its stages.
v1::JobSpec WithParameterShares(v1::JobSpec job);

// Of `ranks` ranks each, those that should be the fastest for all batches together first. Meshes with the
// largest stage groups come first, so that groups are inside of nodes. `job` has model, profile and planning,
// with parameter_shares. Empty where nothing of several meshes is reckoned to be faster than each kind of
// replica alone. Possible errors: INVALID_ARGUMENT (a batch is malformed).
absl::StatusOr<std::vector<v1::Strategy>> ProposeSideBySide(const v1::JobSpec& job, uint32_t ranks,
                                                            absl::Span<const v1::Batch> batches,
                                                            const SideBySideLimits& limits,
                                                            TaskPool* threads);

}  // namespace penstock::cli
