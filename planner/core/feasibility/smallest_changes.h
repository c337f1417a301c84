// What a job that cannot be planned would have to change, found by trying.
//
//   const SmallestChanges changes = FindSmallestChanges(job, batch, {.may_plan = ..., .plans = ...});
//   Describe(changes);   // "; any of these fits: job.mesh.pipeline 6; a maximum length of 11264"
//
// Each change is exact: it alone makes the job plan the batch, and one step less does not.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/parallel/stop.h"

namespace penstock::core {

// Asked many times, about jobs and batches that differ from the given ones in one value.
struct Attempts {
  using Question = std::function<bool(const v1::JobSpec&, const v1::Batch&)>;
  // Cheap and necessary: where it is false, `plans` is false too.
  Question may_plan;
  Question plans;
};

// Nothing where a change cannot help, or where the job has it already.
struct SmallestChanges {
  // job.planning.recompute: full.
  bool full_recompute = false;
  // The fewest stages above those of the job, layers divided anew; where the job gave their division, it may
  // be those of the job.
  std::optional<uint32_t> pipeline;
  // The least above those of the job that model and profile allow.
  std::optional<uint32_t> tensor;
  std::optional<uint32_t> context;
  bool shard_optimizer_state = false;
  // The longest that samples may be, tokens. GPT: of input and target together; T5: of each.
  std::optional<uint32_t> max_length;
  // The largest that are below those of the job.
  std::optional<uint32_t> micro_batch_size;
  std::optional<uint32_t> token_cap;
  // The least in whole millions of bytes; where ranks have limits of their own, on every rank that has less.
  std::optional<int64_t> memory_limit_bytes;
  bool ranks_have_limits = false;
  // Whether layers_per_stage or rank_of_stage were given, which another pipeline has to give up.
  bool stages_were_given = false;
};

// `batch` has samples that the model can take. It may be empty: then only the job itself is asked about.
// Of no worth when `stop` has stopped it.
SmallestChanges FindSmallestChanges(const v1::JobSpec& job, const v1::Batch& batch, const Attempts& attempts,
                                    StopToken stop = {});

// For the end of an error message; empty when there is no change. Fields are named as job.*, a shorter batch
// is "a maximum length of N".
std::string Describe(const SmallestChanges& changes);

// The batch, and the job's typical samples, with longer samples cut: GPT samples lose the end of their input
// first, then of their target; T5 samples are cut on each side.
void CutToLength(uint32_t max_length, v1::JobSpec* job, v1::Batch* batch);

}  // namespace penstock::core
