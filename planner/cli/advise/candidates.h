// The ways to train that `penstock advise` tries.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct Candidate {
  uint32_t pipeline = 1;
  uint32_t data = 1;
  uint32_t tensor = 1;
  uint32_t context = 1;
  // Ranks that divide the experts.
  uint32_t expert = 1;
  v1::Policy policy = v1::POLICY_DYNAMIC;
  v1::StageSplit stage_split = v1::STAGE_SPLIT_EVEN;
  v1::Schedule schedule = v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD;
  bool shard_optimizer_state = false;
  // Nothing: as the job has it that the candidate is of. None of MakeCandidates has a size of its own.
  std::optional<uint64_t> gradient_bucket_bytes = {};

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// What is given, and not searched.
struct Given {
  // Degrees of the mesh; 0: searched.
  uint32_t pipeline = 0;
  uint32_t data = 0;
  uint32_t tensor = 0;
  uint32_t context = 0;
  uint32_t expert = 0;
  std::optional<v1::StageSplit> stage_split = {};
  std::optional<v1::Schedule> schedule = {};
  // Only ways that divide the optimizer's state.
  bool shard_optimizer_state = false;
};

// Every mesh of `gpus` ranks whose pipeline is at most the model's layers, whose replicas are at most the
// samples of a global batch, and whose stage groups can divide the model (core::CheckGroup), with every
// policy, stage split, schedule and sharding that differs on it. `base` has model and profile. Simpler ones
// come first. Possible errors: INVALID_ARGUMENT (there is no such mesh: names --gpus), those of
// core::CheckGroup for degrees that are given.
absl::StatusOr<std::vector<Candidate>> MakeCandidates(const v1::JobSpec& base, uint32_t gpus,
                                                      uint32_t global_batch,
                                                      const std::vector<v1::Policy>& policies,
                                                      const Given& given = {});

// Degrees of a stage group of at most so many ranks that the model and its profile can have, the smallest
// groups first; pipeline and data are 1.
std::vector<Candidate> StageGroups(const v1::JobSpec& base, uint32_t gpus, const Given& given);

v1::Mesh MeshOf(const Candidate& candidate);

// `base` with the candidate's mesh and planning.
v1::JobSpec MakeJob(const v1::JobSpec& base, const Candidate& candidate, v1::Effort effort);

// The flags of `penstock plan` that ask for it: "--pp 4 --dp 2 --policy dynamic ...".
std::string FlagsOf(const Candidate& candidate);

}  // namespace penstock::cli
