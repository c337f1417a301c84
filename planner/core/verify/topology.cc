// Rule 0: the topology holds every layer once in every replica and every rank once, and programs and groups
// are those that follow from it.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

using Ranks = google::protobuf::RepeatedField<uint32_t>;

class TopologyCheck {
 public:
  TopologyCheck(const v1::Plan& plan, Report& report)
      : plan_(plan),
        report_(report),
        replica_of_rank_(plan.programs_size(), -1),
        stages_(plan.programs_size()) {}

  bool Run() {
    const v1::Topology& topology = plan_.topology();
    if (topology.replicas_size() != plan_.replicas_size()) {
      Fail(absl::StrCat("topology.replicas has ", topology.replicas_size(), " replicas, the plan has ",
                        plan_.replicas_size()));
      return false;
    }
    for (int replica = 0; replica < topology.replicas_size(); ++replica) CheckReplica(replica);
    if (report_.count(kStructure) > 0) return false;
    for (int rank = 0; rank < plan_.programs_size(); ++rank) CheckProgram(rank);
    if (report_.count(kStructure) > 0) return false;
    CheckGroups();
    return report_.count(kStructure) == 0;
  }

 private:
  void Fail(const std::string& message) { report_.Add(kStructure, message); }

  void CheckReplica(int replica) {
    const v1::ReplicaTopology& shape = plan_.topology().replicas(replica);
    const std::string name = absl::StrCat("topology.replicas[", replica, "]");
    if (shape.stages_size() != plan_.layers_per_stage_size())
      return Fail(absl::StrCat(name, " has ", shape.stages_size(), " stages, layers_per_stage ",
                               plan_.layers_per_stage_size()));
    uint32_t ranks = 0;
    uint64_t encoders_left = plan_.model().encoder_layers();
    for (int stage = 0; stage < shape.stages_size(); ++stage) {
      const std::string of_stage = absl::StrCat(name, ".stages[", stage, "]");
      CheckLayers(shape.stages(stage), plan_.layers_per_stage(stage), of_stage, &encoders_left);
      if (Place(replica, stage, shape.stages(stage).ranks(), of_stage)) ++ranks;
    }
    if (ranks != plan_.mesh().pipeline())
      Fail(absl::StrCat(name, " has ", ranks, " ranks, mesh.pipeline is ", plan_.mesh().pipeline()));
  }

  // Layers of the encoder come before all others.
  void CheckLayers(const v1::StageTopology& stage, uint32_t layers, const std::string& name,
                   uint64_t* encoders_left) {
    const uint64_t encoders = std::min<uint64_t>(layers, *encoders_left);
    *encoders_left -= encoders;
    if (stage.encoder_layers() == encoders && stage.decoder_layers() == layers - encoders) return;
    Fail(absl::StrCat(name, " has ", stage.encoder_layers(), " and ", stage.decoder_layers(),
                      " layers, layers_per_stage gives it ", encoders, " and ", layers - encoders));
  }

  // Whether this is the first stage of its rank.
  bool Place(int replica, int stage, const Ranks& ranks, const std::string& name) {
    if (ranks.size() != 1) {
      Fail(absl::StrCat(name, " is on ", ranks.size(), " ranks, not on one"));
      return false;
    }
    if (ranks[0] >= replica_of_rank_.size()) {
      Fail(absl::StrCat(name, " is on rank ", ranks[0], ", but the plan has ", replica_of_rank_.size()));
      return false;
    }
    int& owner = replica_of_rank_[ranks[0]];
    stages_[ranks[0]].push_back(static_cast<uint32_t>(stage));
    if (owner == replica) return false;
    if (owner >= 0) Fail(absl::StrCat(name, " is on rank ", ranks[0], ", which is in replica ", owner));
    owner = replica;
    return true;
  }

  void CheckProgram(int rank) {
    const v1::Program& program = plan_.programs(rank);
    if (program.rank() != static_cast<uint32_t>(rank))
      report_.AddAt(kStructure, rank, absl::StrCat("its program says rank ", program.rank()));
    if (program.replica() != static_cast<uint32_t>(replica_of_rank_[rank]))
      report_.AddAt(kStructure, rank,
                    absl::StrCat("its program says replica ", program.replica(), ", the topology ",
                                 replica_of_rank_[rank]));
    if (!std::equal(program.stages().begin(), program.stages().end(), stages_[rank].begin(),
                    stages_[rank].end()))
      report_.AddAt(kStructure, rank,
                    absl::StrCat("its program has stages [", absl::StrJoin(program.stages(), ", "),
                                 "], the topology gives it [", absl::StrJoin(stages_[rank], ", "), "]"));
  }

  // Those of the stages, over the replicas, then those of the replicas.
  void CheckGroups() {
    const int stages = plan_.layers_per_stage_size();
    const int expected = stages + plan_.replicas_size();
    if (plan_.groups_size() != expected)
      return Fail(absl::StrCat("there are ", plan_.groups_size(), " groups, not one for each of ", stages,
                               " stages and ", plan_.replicas_size(), " replicas"));
    for (int stage = 0; stage < stages; ++stage) {
      std::vector<uint32_t> ranks;
      for (const v1::ReplicaTopology& replica : plan_.topology().replicas())
        ranks.push_back(replica.stages(stage).ranks(0));
      CheckGroup(stage, ranks);
    }
    std::vector<std::vector<uint32_t>> of_replicas(plan_.replicas_size());
    for (size_t rank = 0; rank < replica_of_rank_.size(); ++rank)
      of_replicas[replica_of_rank_[rank]].push_back(static_cast<uint32_t>(rank));
    for (int replica = 0; replica < plan_.replicas_size(); ++replica)
      CheckGroup(stages + replica, of_replicas[replica]);
  }

  void CheckGroup(int group, const std::vector<uint32_t>& expected) {
    const Ranks& ranks = plan_.groups(group).ranks();
    if (std::equal(ranks.begin(), ranks.end(), expected.begin(), expected.end())) return;
    Fail(absl::StrCat("group ", group, " has ranks [", absl::StrJoin(ranks, ", "),
                      "], the topology makes it [", absl::StrJoin(expected, ", "), "]"));
  }

  const v1::Plan& plan_;
  Report& report_;
  // Of each rank: its replica, or -1, and its stages.
  std::vector<int> replica_of_rank_;
  std::vector<std::vector<uint32_t>> stages_;
};

}  // namespace

bool CheckTopology(const v1::Plan& plan, Report& report) { return TopologyCheck(plan, report).Run(); }

}  // namespace penstock::core::verify
