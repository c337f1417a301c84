// What a worker knows of its job: plain values, without protobuf and without LibTorch.
//
// Converted from v1::JobSpec in worker/program/from_proto.h, with every default filled in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/program/program.h"
#include "worker/program/topology.h"

namespace penstock::worker {

enum class RateDecay : uint8_t { kCosine, kLinear, kConstant, kCooldown };

// Linear warm-up to `peak`, then a decay to `minimum` (job.proto, LearningRate).
struct LearningRateConfig {
  double peak = 0;
  double minimum = 0;
  uint64_t warmup_iterations = 0;
  uint64_t decay_iterations = 0;
  RateDecay decay = RateDecay::kCosine;
  uint64_t cooldown_iterations = 0;
};

struct TrainingConfig {
  uint64_t seed = 0;
  LearningRateConfig learning_rate = {};
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  // 0: no clipping.
  double clip_norm = 0;
  // 0: no checkpoints.
  uint64_t checkpoint_interval = 0;
  // 0: until the job is drained.
  uint64_t iterations = 0;
};

// Stage groups of one pipeline, replicas of it, context and tensor ranks of a stage group, and how many of
// its ranks divide the experts.
struct MeshConfig {
  uint32_t pipeline = 1;
  uint32_t replicas = 1;
  uint32_t context = 1;
  uint32_t tensor = 1;
  uint32_t expert = 1;

  uint32_t ranks() const { return replicas * pipeline * context * tensor; }
  bool operator==(const MeshConfig&) const = default;
};

// How the ranks of a job divide the work of an iteration: meshes side by side, the ranks of the first, then
// those of the second, and so on.
struct StrategyConfig {
  std::vector<MeshConfig> meshes = {};
  Topology topology = {};

  uint32_t ranks() const;
};

struct JobConfig {
  std::string job_id;
  ModelConfig model;
  // As MeshConfig. Of the first mesh of the first strategy, where the job has strategies.
  uint32_t pipeline = 1;
  uint32_t replicas = 1;
  uint32_t context = 1;
  uint32_t tensor = 1;
  uint32_t expert = 1;
  // Which ranks these are, as the planner says.
  Topology topology = {};
  TrainingConfig training = {};
  // Whether replicas divide the optimizer's state between them (job.proto,
  // PlanningOptions.shard_optimizer_state).
  bool shard_optimizer_state = false;
  // Gradients of so many bytes are summed between replicas as one, at least (job.proto,
  // PlanningOptions.gradient_bucket_bytes).
  int64_t gradient_bucket_bytes = int64_t{4} << 20;
  // Whether parameters and the optimizer's state live in shares that no mesh changes (job.proto,
  // PlanningOptions.parameter_shares).
  bool parameter_shares = false;
  // By rank, how large its share is beside the others' (job.proto, PlanningOptions.share_weights). Empty: all
  // are alike.
  std::vector<uint32_t> share_weights = {};
  // What an iteration may run on (Program.strategy); all have the same ranks. Empty: what stands above alone.
  std::vector<StrategyConfig> strategies = {};
  // Those that it got since (ChangeStrategies), by their numbers: of them, those that were told of.
  std::map<uint32_t, std::shared_ptr<const StrategyConfig>> added_strategies = {};
  // The first iteration of this run.
  uint64_t first_iteration = 0;
  // Of all meshes side by side, where there are several; else 0.
  uint32_t ranks = 0;
  // How many tasks losses are told apart by; 0: they are not.
  uint32_t tasks = 0;

  // Of the topology, which may not be known yet.
  uint32_t world_size() const;
  // By rank; 1 each where all are alike.
  std::vector<uint32_t> ShareWeights() const;
  MeshConfig mesh() const { return {pipeline, replicas, context, tensor, expert}; }
  // How many strategies there are beside those that were added; the meshes of one of these; whether one is
  // known; and the job as it is for a rank on one that is: that one alone, and of its meshes the rank's, but
  // all of its topology.
  uint32_t strategy_count() const;
  std::vector<MeshConfig> MeshesOf(uint32_t strategy) const;
  bool Knows(uint32_t strategy) const;
  JobConfig Of(uint32_t strategy, uint32_t rank) const;
};

}  // namespace penstock::worker
