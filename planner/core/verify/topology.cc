// Rule 0: the topology holds every layer once in every replica and every rank in one stage group, and
// programs and groups are those that follow from it.
#include <algorithm>
#include <map>
#include <numeric>
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
        meshes_(ReplicaMeshes(plan)),
        group_of_rank_(plan.programs_size(), -1),
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
    for (int replica = 1; replica < topology.replicas_size(); ++replica) CheckAlike(replica);
    CheckRanksOfMeshes();
    for (int rank = 0; rank < plan_.programs_size(); ++rank) CheckProgram(rank);
    if (report_.count(kStructure) > 0) return false;
    CheckGroups();
    return report_.count(kStructure) == 0;
  }

 private:
  void Fail(const std::string& message) { report_.Add(kStructure, message); }

  void CheckReplica(int replica) {
    const v1::ReplicaTopology& shape = plan_.topology().replicas(replica);
    const ReplicaMesh& mesh = meshes_[replica];
    const std::string name = absl::StrCat("topology.replicas[", replica, "]");
    if (shape.stages_size() != mesh.stages())
      return Fail(
          absl::StrCat(name, " has ", shape.stages_size(), " stages, layers_per_stage ", mesh.stages()));
    uint32_t positions = 0;
    uint64_t encoders_left = plan_.model().encoder_layers();
    for (int stage = 0; stage < shape.stages_size(); ++stage) {
      const std::string of_stage = absl::StrCat(name, ".stages[", stage, "]");
      CheckLayers(shape.stages(stage), mesh.layers(static_cast<uint32_t>(stage)), of_stage, &encoders_left);
      if (Place(replica, stage, shape.stages(stage).ranks(), of_stage)) ++positions;
    }
    if (positions != mesh.mesh->pipeline())
      Fail(absl::StrCat(name, " has ", positions, mesh.group_ranks() > 1 ? " stage groups" : " ranks",
                        ", mesh.pipeline is ", mesh.mesh->pipeline()));
  }

  // Meshes side by side have the ranks of the first, then those of the second, and so on.
  void CheckRanksOfMeshes() {
    std::vector<int> replicas;
    for (uint32_t rank = 0; rank < group_of_rank_.size(); ++rank) replicas.push_back(ReplicaOf(rank));
    for (size_t rank = 1; rank < replicas.size(); ++rank) {
      if (replicas[rank] < 0 || replicas[rank - 1] < 0) continue;
      const int before = meshes_[replicas[rank - 1]].first_replica;
      if (meshes_[replicas[rank]].first_replica >= before) continue;
      return Fail(
          absl::StrCat("topology: rank ", rank, " is of a mesh that comes before that of rank ", rank - 1));
    }
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

  // Whether this is the first stage of its group. Groups of several stages are the same in all of them.
  bool Place(int replica, int stage, const Ranks& ranks, const std::string& name) {
    const int expected = meshes_[replica].group_ranks();
    if (ranks.size() != expected) {
      Fail(absl::StrCat(name, " is on ", ranks.size(), " ranks, not on ",
                        expected > 1 ? absl::StrCat(expected) : "one"));
      return false;
    }
    for (const uint32_t rank : ranks) {
      if (rank < group_of_rank_.size()) continue;
      Fail(absl::StrCat(name, " is on rank ", rank, ", but the plan has ", group_of_rank_.size()));
      return false;
    }
    const int first = group_of_rank_[ranks[0]];
    for (const uint32_t rank : ranks) stages_[rank].push_back(static_cast<uint32_t>(stage));
    if (first >= 0 && groups_[first].replica == replica &&
        std::equal(ranks.begin(), ranks.end(), groups_[first].ranks.begin(), groups_[first].ranks.end()))
      return false;
    groups_.push_back({replica, {ranks.begin(), ranks.end()}});
    for (const uint32_t rank : ranks) Enter(rank, name);
    return true;
  }

  // The rank is in the group that was listed last, and in no other.
  void Enter(uint32_t rank, const std::string& name) {
    const int group = static_cast<int>(groups_.size()) - 1;
    int& owner = group_of_rank_[rank];
    if (owner == group) {
      Fail(absl::StrCat(name, " is on rank ", rank, " twice"));
    } else if (owner >= 0 && groups_[owner].replica != groups_[group].replica) {
      Fail(absl::StrCat(name, " is on rank ", rank, ", which is in replica ", groups_[owner].replica));
    } else if (owner >= 0) {
      Fail(absl::StrCat(name, " is on rank ", rank, ", which is in another stage group"));
    }
    owner = group;
  }

  int ReplicaOf(uint32_t rank) const {
    return group_of_rank_[rank] < 0 ? -1 : groups_[group_of_rank_[rank]].replica;
  }

  // Stages that are together in the first replica of its mesh are so in this one. Groups are equal or have no
  // rank in common.
  void CheckAlike(int replica) {
    const int alike_to = meshes_[replica].first_replica;
    const auto& first = plan_.topology().replicas(alike_to);
    const auto& other = plan_.topology().replicas(replica);
    std::map<uint32_t, uint32_t> there, back;
    for (int stage = 0; stage < first.stages_size(); ++stage) {
      const uint32_t rank = first.stages(stage).ranks(0), of_other = other.stages(stage).ranks(0);
      const bool alike = there.emplace(rank, of_other).first->second == of_other &&
                         back.emplace(of_other, rank).first->second == rank;
      if (!alike)
        return Fail(absl::StrCat("topology.replicas[", replica, "].stages[", stage,
                                 "] is not with the stages that it is with in topology.replicas[", alike_to,
                                 "]"));
    }
  }

  void CheckProgram(int rank) {
    const v1::Program& program = plan_.programs(rank);
    if (program.rank() != static_cast<uint32_t>(rank))
      report_.AddAt(kStructure, rank, absl::StrCat("its program says rank ", program.rank()));
    if (program.replica() != static_cast<uint32_t>(ReplicaOf(rank)))
      report_.AddAt(
          kStructure, rank,
          absl::StrCat("its program says replica ", program.replica(), ", the topology ", ReplicaOf(rank)));
    if (!std::equal(program.stages().begin(), program.stages().end(), stages_[rank].begin(),
                    stages_[rank].end()))
      report_.AddAt(kStructure, rank,
                    absl::StrCat("its program has stages [", absl::StrJoin(program.stages(), ", "),
                                 "], the topology gives it [", absl::StrJoin(stages_[rank], ", "), "]"));
  }

  // Those that reduce, then those of the replicas, then the stage groups; with shares all ranks in place of
  // the first two.
  void CheckGroups() {
    const std::vector<std::vector<uint32_t>> expected = ExpectedGroups();
    if (plan_.groups_size() != static_cast<int>(expected.size()))
      return Fail(
          absl::StrCat("there are ", plan_.groups_size(), " groups, not ", expected.size(), ": ",
                       plan_.options().parameter_shares()
                           ? "all ranks, "
                           : "for each stage, and in it for each tensor rank, those who reduce, then the "
                             "replicas, ",
                       "then the stage groups of several ranks"));
    for (size_t group = 0; group < expected.size(); ++group)
      CheckGroup(static_cast<int>(group), expected[group]);
  }

  std::vector<std::vector<uint32_t>> ExpectedGroups() const {
    std::vector<std::vector<uint32_t>> expected;
    if (plan_.options().parameter_shares()) {
      expected.emplace_back(group_of_rank_.size());
      std::iota(expected.back().begin(), expected.back().end(), 0);
    } else {
      AppendReducersAndReplicas(&expected);
    }
    AppendStageGroups(&expected);
    return expected;
  }

  void AppendReducersAndReplicas(std::vector<std::vector<uint32_t>>* expected) const {
    // Without shares there is one mesh.
    const uint32_t tensors = meshes_[0].tensors;
    const auto group_ranks = static_cast<uint32_t>(meshes_[0].group_ranks());
    for (int stage = 0; stage < meshes_[0].stages(); ++stage) {
      for (uint32_t tensor = 0; tensor < tensors; ++tensor) {
        std::vector<uint32_t>& reducers = expected->emplace_back();
        for (const v1::ReplicaTopology& replica : plan_.topology().replicas())
          for (uint32_t place = tensor; place < group_ranks; place += tensors)
            reducers.push_back(replica.stages(stage).ranks(static_cast<int>(place)));
      }
    }
    const size_t replicas_from = expected->size();
    expected->resize(replicas_from + plan_.replicas_size());
    for (uint32_t rank = 0; rank < group_of_rank_.size(); ++rank)
      (*expected)[replicas_from + ReplicaOf(rank)].push_back(rank);
  }

  // Those of several ranks: replica by replica, in each by the lowest rank.
  void AppendStageGroups(std::vector<std::vector<uint32_t>>* expected) const {
    std::vector<const StageGroup*> ordered;
    for (const StageGroup& group : groups_)
      if (group.ranks.size() > 1) ordered.push_back(&group);
    std::sort(ordered.begin(), ordered.end(), [](const StageGroup* a, const StageGroup* b) {
      if (a->replica != b->replica) return a->replica < b->replica;
      return *std::min_element(a->ranks.begin(), a->ranks.end()) <
             *std::min_element(b->ranks.begin(), b->ranks.end());
    });
    for (const StageGroup* group : ordered) expected->push_back(group->ranks);
  }

  void CheckGroup(int group, const std::vector<uint32_t>& expected) {
    const Ranks& ranks = plan_.groups(group).ranks();
    if (std::equal(ranks.begin(), ranks.end(), expected.begin(), expected.end())) return;
    Fail(absl::StrCat("group ", group, " has ranks [", absl::StrJoin(ranks, ", "),
                      "], the topology makes it [", absl::StrJoin(expected, ", "), "]"));
  }

  struct StageGroup {
    int replica = 0;
    // By place.
    std::vector<uint32_t> ranks;
  };

  const v1::Plan& plan_;
  Report& report_;
  const std::vector<ReplicaMesh> meshes_;
  std::vector<StageGroup> groups_;
  // Of each rank: its stage group, or -1, and its stages.
  std::vector<int> group_of_rank_;
  std::vector<std::vector<uint32_t>> stages_;
};

}  // namespace

bool CheckTopology(const v1::Plan& plan, Report& report) { return TopologyCheck(plan, report).Run(); }

}  // namespace penstock::core::verify
