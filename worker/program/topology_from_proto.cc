#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
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

}  // namespace

absl::StatusOr<Topology> TopologyFromProto(const v1::Topology& proto, const JobConfig& job) {
  if (proto.replicas_size() != static_cast<int>(job.replicas)) {
    return InvalidTopology(".replicas has ", proto.replicas_size(), " replicas, but the job has ",
                           job.replicas);
  }
  Topology topology;
  RankOwners owners(job.world_size());
  for (int replica = 0; replica < proto.replicas_size(); ++replica) {
    ReplicaTopology& made = topology.replicas.emplace_back();
    if (proto.replicas(replica).stages_size() != proto.replicas(0).stages_size()) {
      return InvalidTopology(".replicas[", replica,
                             "].stages differs in number from that of the first replica");
    }
    for (int stage = 0; stage < proto.replicas(replica).stages_size(); ++stage) {
      const v1::StageTopology& placed = proto.replicas(replica).stages(stage);
      const std::string name = absl::StrCat(".replicas[", replica, "].stages[", stage, "]");
      if (placed.ranks().empty()) return InvalidTopology(name, ".ranks is empty");
      if (placed.ranks_size() > 1) {
        return absl::UnimplementedError(
            absl::StrCat("topology", name, ".ranks has several ranks: this worker knows one a stage"));
      }
      PENSTOCK_RETURN_IF_ERROR(owners.Add(replica, placed.ranks(0), name));
      made.stages.push_back({.ranks = {placed.ranks(0)}});
    }
  }
  PENSTOCK_RETURN_IF_ERROR(owners.CheckAllHoldStages());
  return topology;
}

}  // namespace penstock::worker
