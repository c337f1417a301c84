// `penstock plan --explain`: where the time of an iteration goes, and what would help most.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/noise_comparison.h"
#include "planner/cli/time_split.h"
#include "planner/cli/what_if.h"
#include "planner/core/parallel/run_tasks.h"

namespace penstock::cli {

// The ranks of one of several meshes side by side.
struct ExplainedMesh {
  // "tp 4 x dp 2".
  std::string name;
  int first_rank = 0;
  int ranks = 0;
};

struct Explanation {
  // Of each rank.
  std::vector<TimeSplit> ranks = {};
  // In their order; empty where the plan has a mesh alone.
  std::vector<ExplainedMesh> meshes = {};
  // The most gain first.
  std::vector<WhatIf> what_ifs = {};
  // Nothing where the profile says of no noise.
  std::optional<NoiseComparison> noise = {};
};

// Plans the batch some ten times under other conditions. `job` is the one that the plan was made for.
// `progress` and `run_tasks` as in AskWhatIf. Possible errors: those of SplitTime, AskWhatIf and
// CompareUnderNoise.
absl::StatusOr<Explanation> Explain(const v1::JobSpec& job, const v1::PlannedBatch& planned,
                                    const std::function<void(const std::string&)>& progress = nullptr,
                                    const core::RunTasks& run_tasks = core::RunSerially);

// What to do: by the two plans that gain most on as many ranks, if they gain 1 %; else by the estimate.
// Then what more ranks would gain.
std::string Conclusion(const Explanation& explanation);

// Two tables, the noise where there is some, and the conclusion.
std::string ToText(const Explanation& explanation);

// {parts: [[key, title]], time: {mean, busiest, idlest, and of several meshes meshes: [{mesh, ...}]},
// what_if: [{condition, kind, makespan_ms, gain, ranks, advice}], conclusion, and where there is noise noise:
// ToJson of a NoiseComparison}; times are shares of the makespan.
nlohmann::ordered_json ToJson(const Explanation& explanation);

}  // namespace penstock::cli
