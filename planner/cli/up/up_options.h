// What `penstock up` was asked for.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/planning_flags.h"

namespace penstock::cli {

// What the workers of this version run, and stages that stay as they are whatever the data.
inline PlanningFlags PlanningFlagsOfUp() {
  PlanningFlags flags;
  flags.schedule = v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD;
  flags.stage_split = v1::STAGE_SPLIT_EVEN;
  return flags;
}

struct UpOptions {
  std::string job_id;
  // Folder of this run: logs, checkpoints, the flags it was started with.
  std::string run_dir;
  // Go on from the newest checkpoint of the run folder.
  bool resume = false;
  // Begin anew although the run folder has checkpoints; they are removed.
  bool fresh = false;
  // "host:port" of a running planner; empty: a planner of our own.
  std::string planner_address;
  // "host:port" for the metrics of our own planner; empty: none.
  std::string metrics_listen;

  // Data.
  std::string dataset;
  uint32_t global_batch = 64;
  uint32_t max_length = 2048;
  uint64_t iterations = 30;

  // Mesh and planning. A memory limit of 0 is this machine's free memory divided by the ranks.
  uint32_t pipeline = 1;
  uint32_t data = 1;
  v1::Policy policy = v1::POLICY_DYNAMIC;
  PlanningFlags planning = PlanningFlagsOfUp();
  uint32_t look_ahead = 0;
  // A profile file; empty: measured on this machine and cached.
  std::string profile;
  double profile_seconds = 6;

  // Model.
  uint32_t layers = 4;
  uint32_t hidden = 128;
  uint32_t heads = 4;
  uint32_t ffn = 512;
  // 0: one more than the largest token id of the dataset.
  uint32_t vocab = 0;
  v1::DataType dtype = v1::DATA_TYPE_FLOAT32;

  // Training.
  uint64_t seed = 1;
  double learning_rate = 3e-3;
  double minimum_learning_rate = 3e-4;
  uint64_t warmup = 5;
  double weight_decay = 0.1;
  double clip_norm = 1.0;
  uint64_t checkpoint_every = 0;
  // Threads of each worker; 0: the machine's cores divided by the workers, at least 1.
  uint32_t threads = 0;

  // Where the Chrome trace of the measured iterations goes; empty: none.
  std::string trace;
  // The summary as one JSON object.
  bool json = false;
};

// Ranks of the job, which are the workers of this machine.
uint32_t WorkerCount(const UpOptions& options);

// Threads of one worker: as asked for, or an equal share of the cores.
uint32_t ThreadsOfEachWorker(const UpOptions& options);

// The job that these options ask for, without its cost profile and first iteration. `vocab` is the size of
// the vocabulary. Possible errors: INVALID_ARGUMENT, naming the flag.
absl::StatusOr<v1::JobSpec> MakeJobSpec(const UpOptions& options, uint32_t vocab);

}  // namespace penstock::cli
