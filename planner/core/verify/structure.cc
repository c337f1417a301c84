// Rule 0: sizes, ranges, ids and keys.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "planner/core/verify/adapters.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

// As job.proto, Mesh.
constexpr uint32_t kMostTensorRanks = 64;
constexpr uint32_t kMostContextRanks = 1024;
// As job.proto, JobSpec.strategies.
constexpr uint32_t kMostStrategies = 64;
// As job.proto, PlanningOptions.share_weights.
constexpr uint32_t kMostShareWeight = 1 << 20;
// As job.proto, PlanningOptions.gradient_bucket_bytes.
constexpr uint64_t kMostGradientBucketBytes = uint64_t{1} << 40;

using Layers = google::protobuf::RepeatedField<uint32_t>;

// A mesh of the plan, with its name in messages: "mesh", or "meshes[i].mesh" of several side by side.
struct NamedMesh {
  const v1::Mesh& mesh;
  const Layers& layers_per_stage;
  std::string name;
  std::string layers_name;
};

std::vector<NamedMesh> MeshesOf(const v1::Plan& plan) {
  std::vector<NamedMesh> meshes;
  for (int i = 0; i < plan.meshes_size(); ++i) {
    const std::string name = absl::StrCat("meshes[", i, "].");
    const v1::StrategyMesh& mesh = plan.meshes(i);
    meshes.push_back({mesh.mesh(), mesh.layers_per_stage(), name + "mesh", name + "layers_per_stage"});
  }
  if (meshes.empty()) meshes.push_back({plan.mesh(), plan.layers_per_stage(), "mesh", "layers_per_stage"});
  return meshes;
}

std::string WidthsOf(const v1::ModelSpec& model) {
  if (model.shared_expert_ffn() == 0) return absl::StrCat("ffn of ", model.ffn());
  return absl::StrCat("ffn of ", model.ffn(), " and shared_expert_ffn of ", model.shared_expert_ffn());
}

// Degrees of a stage group: what divides the model.
void CheckGroupShape(const v1::ModelSpec& model, const NamedMesh& named, Report& report) {
  const auto fail = [&](const std::string& what) { report.Add(kStructure, named.name + what); };
  const uint32_t tensor = TensorRanks(named.mesh), context = ContextRanks(named.mesh);
  if (tensor > kMostTensorRanks || context > kMostContextRanks)
    fail(absl::StrCat(".tensor is ", tensor, " and ", named.name, ".context ", context, ", they are at most ",
                      kMostTensorRanks, " and ", kMostContextRanks));
  if ((context & (context - 1)) != 0)
    fail(absl::StrCat(".context is ", context, ", which is no power of two"));
  if (context > 1 && model.architecture() == v1::ARCHITECTURE_T5)
    fail(".context is above 1, which a T5 does not have");
  const uint32_t shared = model.key_value_heads() > 0 ? model.key_value_heads() : model.heads();
  if (tensor == 1) return;
  if (model.heads() == 0 || model.heads() % tensor != 0 || model.ffn() % tensor != 0 ||
      model.shared_expert_ffn() % tensor != 0 || (shared % tensor != 0 && tensor % shared != 0))
    fail(absl::StrCat(".tensor is ", tensor, ", which does not divide ", model.heads(), " heads, ", shared,
                      " key-value heads and ", WidthsOf(model)));
}

// What `mesh` and its stages say of a plan with several meshes is what the first one is.
void CheckFirstMesh(const v1::Plan& plan, Report& report) {
  if (plan.meshes().empty()) return;
  if (!plan.options().parameter_shares())
    report.Add(kStructure, "meshes is set without options.parameter_shares");
  if (plan.meshes_size() == 1) report.Add(kStructure, "meshes has one mesh, which `mesh` is for");
  if (plan.meshes(0).mesh().SerializeAsString() != plan.mesh().SerializeAsString())
    report.Add(kStructure, "mesh is another one than meshes[0].mesh");
  const auto equal = [](const Layers& a, const Layers& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  if (!equal(plan.layers_per_stage(), plan.meshes(0).layers_per_stage()))
    report.Add(kStructure, "layers_per_stage is another one than meshes[0].layers_per_stage");
  if (!equal(plan.options().layers_per_stage(), plan.meshes(0).layers_per_stage()))
    report.Add(kStructure, "options.layers_per_stage is another one than meshes[0].layers_per_stage");
  if (!equal(plan.options().rank_of_stage(), plan.meshes(0).rank_of_stage()))
    report.Add(kStructure, "options.rank_of_stage is another one than meshes[0].rank_of_stage");
}

bool CheckMesh(const v1::Plan& plan, Report& report) {
  CheckFirstMesh(plan, report);
  uint64_t ranks = 0, replicas = 0;
  std::string sizes;
  for (const NamedMesh& named : MeshesOf(plan)) {
    CheckGroupShape(plan.model(), named, report);
    const v1::Mesh& mesh = named.mesh;
    const uint64_t group = uint64_t{TensorRanks(mesh)} * ContextRanks(mesh);
    const uint64_t groups = uint64_t{mesh.pipeline()} * mesh.data();
    // Far more than there are programs, so that the sums do not overflow.
    const auto programs = static_cast<uint64_t>(plan.programs_size());
    ranks += groups > programs ? programs + 1 : groups * group;
    replicas += mesh.data();
    absl::StrAppend(&sizes, sizes.empty() ? "" : " and ", mesh.pipeline(), " x ", mesh.data(),
                    group > 1 ? absl::StrCat(" groups of ", group) : "");
  }
  if (report.count(kStructure) > 0) return false;
  if (ranks == 0 || ranks != static_cast<uint64_t>(plan.programs_size()))
    report.Add(kStructure, absl::StrCat("mesh of ", sizes, " ranks but ", plan.programs_size(), " programs"));
  if (replicas != static_cast<uint64_t>(plan.replicas_size()))
    report.Add(kStructure,
               absl::StrCat(plan.meshes().empty() ? "mesh.data is " : "meshes[].mesh.data add up to ",
                            replicas, " but there are ", plan.replicas_size(), " replicas"));
  return report.count(kStructure) == 0;
}

void CheckStages(const NamedMesh& named, uint64_t layers, Report& report) {
  uint64_t sum = 0;
  for (uint32_t count : named.layers_per_stage) {
    if (count == 0) report.Add(kStructure, absl::StrCat(named.layers_name, " has a stage without layers"));
    sum += count;
  }
  if (sum != layers)
    report.Add(kStructure,
               absl::StrCat(named.layers_name, " adds up to ", sum, " but the model has ", layers));
  if (named.layers_per_stage.size() < static_cast<int>(named.mesh.pipeline()))
    report.Add(kStructure, absl::StrCat(named.layers_name, " has ", named.layers_per_stage.size(),
                                        " stages for a pipeline of ", named.mesh.pipeline()));
}

void CheckDenseLayers(const v1::ModelSpec& model, Report& report) {
  if (model.dense_layers().empty()) return;
  if (model.experts() == 0)
    report.Add(kStructure, "model.dense_layers is set, which is of models with experts");
  uint32_t before = 0;
  for (const uint32_t layer : model.dense_layers()) {
    if (layer <= before || layer > model.layers())
      report.Add(kStructure, absl::StrCat("model.dense_layers has ", layer, " behind ", before, ", of ",
                                          model.layers(), " layers"));
    before = layer;
  }
}

bool CheckLayers(const v1::Plan& plan, Report& report) {
  const v1::ModelSpec& model = plan.model();
  if (model.architecture() != v1::ARCHITECTURE_GPT && model.architecture() != v1::ARCHITECTURE_T5)
    report.Add(kStructure, absl::StrCat("model.architecture is ", static_cast<int>(model.architecture())));
  const uint64_t layers = model.architecture() == v1::ARCHITECTURE_T5
                              ? uint64_t{model.encoder_layers()} + model.decoder_layers()
                              : model.layers();
  const bool t5 = model.architecture() == v1::ARCHITECTURE_T5;
  if (t5 ? model.layers() > 0 : model.encoder_layers() > 0 || model.decoder_layers() > 0)
    report.Add(kStructure,
               t5 ? "model.layers is set, which a T5 does not have"
                  : "model.encoder_layers or model.decoder_layers is set, which a GPT does not have");
  if (model.hidden() == 0) report.Add(kStructure, "model.hidden is 0");
  CheckDenseLayers(model, report);
  for (const NamedMesh& named : MeshesOf(plan)) CheckStages(named, layers, report);
  return report.count(kStructure) == 0;
}

void CheckRecompute(const v1::Plan& plan, Report& report) {
  const std::vector<ReplicaMesh> meshes = ReplicaMeshes(plan);
  for (int replica = 0; replica < plan.replicas_size(); ++replica) {
    const ReplicaMesh& mesh = meshes[replica];
    for (int m = 0; m < plan.replicas(replica).micro_batches_size(); ++m) {
      const v1::MicroBatch& micro_batch = plan.replicas(replica).micro_batches(m);
      const std::string name = absl::StrCat("replica ", replica, ", micro-batch ", m, ": ");
      if (micro_batch.recompute_size() != mesh.stages()) {
        report.Add(kStructure, absl::StrCat(name, "recompute has ", micro_batch.recompute_size(),
                                            " entries for ", mesh.stages(), " stages"));
        continue;
      }
      for (int stage = 0; stage < mesh.stages(); ++stage) {
        const v1::StageRecompute& recompute = micro_batch.recompute(stage);
        if (uint64_t{recompute.full_layers()} + recompute.selective_layers() >
            mesh.layers(static_cast<uint32_t>(stage)))
          report.Add(kStructure, absl::StrCat(name, "stage ", stage, " recomputes more layers than it has"));
        if (plan.forward_only() && (recompute.full_layers() > 0 || recompute.selective_layers() > 0))
          report.Add(kStructure,
                     absl::StrCat(name, "stage ", stage,
                                  " recomputes layers, but a plan that is forward_only has no pass "
                                  "back to do it for"));
      }
    }
  }
}

bool CheckInstruction(const v1::Plan& plan, int rank, int position, Report& report) {
  const v1::Program& program = plan.programs(rank);
  const v1::Instruction& instruction = program.instructions(position);
  const auto fail = [&](const std::string& message) {
    report.AddAt(kStructure, rank, instruction, message);
    return false;
  };
  if (instruction.id() != static_cast<uint32_t>(position))
    return fail(absl::StrCat("its id is not its position ", position, " in the program"));
  if (KindOf(instruction.op(), instruction.part()) < 0) return fail("this version knows no such op and part");
  if (std::find(program.stages().begin(), program.stages().end(), instruction.stage()) ==
      program.stages().end())
    return fail("the stage is not on this rank");
  const uint32_t micro_batches =
      IsOfWholeIteration(instruction.op())
          ? 1
          : plan.replicas(static_cast<int>(program.replica())).micro_batches_size();
  if (instruction.micro_batch() >= micro_batches)
    return fail(absl::StrCat("there are ", micro_batches, " micro-batches"));
  return true;
}

bool CheckPrograms(const v1::Plan& plan, Report& report) {
  bool sound = true;
  for (int rank = 0; rank < plan.programs_size(); ++rank) {
    absl::flat_hash_set<std::tuple<int, uint32_t, uint32_t, uint32_t>> keys;
    keys.reserve(plan.programs(rank).instructions_size());
    for (int i = 0; i < plan.programs(rank).instructions_size(); ++i) {
      sound &= CheckInstruction(plan, rank, i, report);
      const v1::Instruction& instruction = plan.programs(rank).instructions(i);
      if (!keys.emplace(instruction.op(), instruction.stage(), instruction.micro_batch(), instruction.part())
               .second)
        report.AddAt(kStructure, rank, instruction,
                     "an earlier instruction has the same (op, stage, micro-batch, part)");
    }
  }
  return sound;
}

void CheckShareWeights(const v1::Plan& plan, Report& report) {
  const auto& weights = plan.options().share_weights();
  if (weights.empty()) return;
  if (!plan.options().parameter_shares())
    report.Add(kStructure, "options.share_weights is set without options.parameter_shares");
  if (weights.size() != plan.programs_size())
    report.Add(kStructure, absl::StrCat("options.share_weights has ", weights.size(), " for ",
                                        plan.programs_size(), " ranks"));
  const uint32_t most = *std::max_element(weights.begin(), weights.end());
  if (most == 0 || most > kMostShareWeight)
    report.Add(kStructure, absl::StrCat("the largest of options.share_weights is ", most,
                                        ", which is from 1 to ", kMostShareWeight));
}

void CheckGradientBuckets(const v1::Plan& plan, Report& report) {
  const uint64_t bytes = plan.options().gradient_bucket_bytes();
  if (bytes > 0 && plan.options().parameter_shares())
    report.Add(kStructure, "options.gradient_bucket_bytes is set with options.parameter_shares");
  if (bytes > kMostGradientBucketBytes)
    report.Add(kStructure, absl::StrCat("options.gradient_bucket_bytes is ", bytes, ", which is at most ",
                                        kMostGradientBucketBytes));
}

void CheckRankMemory(const v1::Plan& plan, Report& report) {
  const auto& limits = plan.options().rank_memory_limits();
  for (int i = 0; i < limits.size(); ++i) {
    const std::string field = absl::StrCat("options.rank_memory_limits[", i, "]");
    if (limits[i].rank() >= static_cast<uint32_t>(plan.programs_size()))
      report.Add(kStructure,
                 absl::StrCat(field, ".rank is ", limits[i].rank(), " of ", plan.programs_size(), " ranks"));
    if (i > 0 && limits[i].rank() <= limits[i - 1].rank())
      report.Add(kStructure, absl::StrCat(field, ".rank is ", limits[i].rank(), ", which does not ascend"));
    if (limits[i].bytes() < 1) report.Add(kStructure, absl::StrCat(field, ".bytes is ", limits[i].bytes()));
  }
}

}  // namespace

bool CheckStructure(const v1::Batch& batch, const v1::Plan& plan, Report& report) {
  // With shares the topology has other groups: what belongs to both is said first.
  CheckGradientBuckets(plan, report);
  if (!CheckMesh(plan, report) || !CheckLayers(plan, report) || !CheckTopology(plan, report)) return false;
  if (plan.iteration() != batch.iteration())
    report.Add(kStructure, absl::StrCat("the plan is for iteration ", plan.iteration(),
                                        ", the batch is iteration ", batch.iteration()));
  if (plan.options().typical_samples_size() > 0)
    report.Add(kStructure, "options.typical_samples is set, which plans do not carry");
  if (plan.strategy() >= kMostStrategies || (plan.strategy() > 0 && !plan.options().parameter_shares()))
    report.Add(kStructure, absl::StrCat("strategy is ", plan.strategy(), ", which is below ", kMostStrategies,
                                        ", and 0 without options.parameter_shares"));
  if (plan.planning_time_ns() < 0)
    report.Add(kStructure, absl::StrCat("planning_time_ns is ", plan.planning_time_ns()));
  if (plan.predicted().expected_ns() < 0)
    report.Add(kStructure, absl::StrCat("predicted.expected_ns is ", plan.predicted().expected_ns()));
  CheckShareWeights(plan, report);
  CheckRankMemory(plan, report);
  CheckAdapterFields(plan, report);
  CheckRecompute(plan, report);
  return CheckPrograms(plan, report);
}

}  // namespace penstock::core::verify
