#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

template <typename... Parts>
absl::Status InvalidTopology(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("topology", parts...));
}

// Finds stages that share ranks where they may not, and ranks that hold nothing.
class RankOwners {
 public:
  explicit RankOwners(uint32_t ranks) : owners_(ranks, -1) {}

  absl::Status Add(int replica, uint32_t rank, const std::string& name) {
    if (rank >= owners_.size())
      return InvalidTopology(name, ".ranks names rank ", rank, ", but the job has ", owners_.size());
    if (owners_[rank] >= 0 && owners_[rank] != replica) {
      return InvalidTopology(name, ".ranks names rank ", rank, ", which is in replica ", owners_[rank]);
    }
    owners_[rank] = replica;
    return absl::OkStatus();
  }

  absl::Status CheckAllHoldStages() const {
    for (size_t rank = 0; rank < owners_.size(); ++rank) {
      if (owners_[rank] < 0) return InvalidTopology(": rank ", rank, " holds no stage");
    }
    return absl::OkStatus();
  }

 private:
  // Replica of each rank, or -1.
  std::vector<int> owners_;
};

// A rank's stages are held by one stage group: passes of them all are exchanged there.
absl::Status CheckGroups(const std::vector<StageTopology>& stages, const std::string& name) {
  const RankGroup& last = stages.back().ranks;
  for (const StageTopology& earlier : stages) {
    if (earlier.ranks == last) continue;
    for (const uint32_t rank : last) {
      if (std::ranges::find(earlier.ranks, rank) == earlier.ranks.end()) continue;
      return InvalidTopology(name, ".ranks names rank ", rank, ", which is in another stage group, too");
    }
  }
  return absl::OkStatus();
}

// The stage group of one stage.
absl::StatusOr<StageTopology> StageFromProto(const v1::StageTopology& placed, const MeshConfig& mesh,
                                             const std::string& name) {
  if (placed.ranks().empty()) return InvalidTopology(name, ".ranks is empty");
  if (static_cast<uint32_t>(placed.ranks_size()) != mesh.context * mesh.tensor) {
    return InvalidTopology(name, ".ranks has ", placed.ranks_size(),
                           " ranks, but a stage group of the job has ", mesh.context * mesh.tensor);
  }
  StageTopology stage = {.ranks = {placed.ranks().begin(), placed.ranks().end()},
                         .layers = placed.encoder_layers() + placed.decoder_layers()};
  RankGroup sorted = stage.ranks;
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end()) return InvalidTopology(name, ".ranks names rank ", *twice, " twice");
  return stage;
}

}  // namespace

absl::StatusOr<Topology> TopologyFromProto(const v1::Topology& proto, const std::vector<MeshConfig>& meshes) {
  std::vector<const MeshConfig*> mesh_of_replica;
  uint32_t ranks = 0;
  for (const MeshConfig& mesh : meshes) {
    mesh_of_replica.insert(mesh_of_replica.end(), mesh.replicas, &mesh);
    ranks += mesh.ranks();
  }
  if (static_cast<size_t>(proto.replicas_size()) != mesh_of_replica.size()) {
    return InvalidTopology(".replicas has ", proto.replicas_size(), " replicas, but the job has ",
                           mesh_of_replica.size());
  }
  Topology topology;
  RankOwners owners(ranks);
  // The first replica of the same mesh.
  int alike_to = 0;
  for (int replica = 0; replica < proto.replicas_size(); ++replica) {
    const MeshConfig& mesh = *mesh_of_replica[replica];
    if (&mesh != mesh_of_replica[alike_to]) alike_to = replica;
    ReplicaTopology& made = topology.replicas.emplace_back();
    made.tensor = mesh.tensor;
    made.expert = mesh.expert;
    if (proto.replicas(replica).stages_size() != proto.replicas(alike_to).stages_size()) {
      return InvalidTopology(".replicas[", replica, "].stages differs in number from that of ",
                             alike_to == 0 ? "the first replica" : absl::StrCat("replica ", alike_to));
    }
    for (int stage = 0; stage < proto.replicas(replica).stages_size(); ++stage) {
      const std::string name = absl::StrCat(".replicas[", replica, "].stages[", stage, "]");
      PENSTOCK_ASSIGN_OR_RETURN(StageTopology placed,
                                StageFromProto(proto.replicas(replica).stages(stage), mesh, name));
      for (const uint32_t rank : placed.ranks) PENSTOCK_RETURN_IF_ERROR(owners.Add(replica, rank, name));
      made.stages.push_back(std::move(placed));
      PENSTOCK_RETURN_IF_ERROR(CheckGroups(made.stages, name));
    }
  }
  PENSTOCK_RETURN_IF_ERROR(owners.CheckAllHoldStages());
  return topology;
}

absl::StatusOr<Topology> TopologyFromProto(const v1::Topology& proto, const JobConfig& job) {
  return TopologyFromProto(proto, job.MeshesOf(0));
}

absl::Status AddStrategyTopologies(const v1::RegisterWorkerResponse& response, JobConfig& job) {
  if (static_cast<size_t>(response.strategies_size()) != job.strategies.size()) {
    return absl::InvalidArgumentError(absl::StrCat("strategies has ", response.strategies_size(),
                                                   " topologies, but the job has ", job.strategies.size(),
                                                   " strategies"));
  }
  for (int i = 0; i < response.strategies_size(); ++i) {
    const auto number = static_cast<uint32_t>(i);
    absl::StatusOr<Topology> topology = TopologyFromProto(response.strategies(i), job.MeshesOf(number));
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(topology.status(), absl::StrCat("strategies[", i, "]")));
    job.strategies[number].topology = *std::move(topology);
  }
  if (job.strategies.empty() || job.strategies.front().topology == job.topology) return absl::OkStatus();
  return absl::InvalidArgumentError("strategies[0] is not the topology of the job");
}

}  // namespace penstock::worker
