// Rule 0: sizes, ranges, ids and keys.
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

// As job.proto, Mesh.
constexpr uint32_t kMostTensorRanks = 64;
constexpr uint32_t kMostContextRanks = 1024;
// As job.proto, JobSpec.strategies.
constexpr uint32_t kMostStrategies = 64;

// Degrees of a stage group: what divides the model.
void CheckGroupShape(const v1::Plan& plan, Report& report) {
  const v1::ModelSpec& model = plan.model();
  const uint32_t tensor = TensorRanks(plan.mesh()), context = ContextRanks(plan.mesh());
  if (tensor > kMostTensorRanks || context > kMostContextRanks)
    report.Add(kStructure, absl::StrCat("mesh.tensor is ", tensor, " and mesh.context ", context,
                                        ", they are at most ", kMostTensorRanks, " and ", kMostContextRanks));
  if ((context & (context - 1)) != 0)
    report.Add(kStructure, absl::StrCat("mesh.context is ", context, ", which is no power of two"));
  if (context > 1 && model.architecture() == v1::ARCHITECTURE_T5)
    report.Add(kStructure, "mesh.context is above 1, which a T5 does not have");
  const uint32_t shared = model.key_value_heads() > 0 ? model.key_value_heads() : model.heads();
  if (tensor == 1) return;
  if (model.heads() == 0 || model.heads() % tensor != 0 || model.ffn() % tensor != 0 ||
      (shared % tensor != 0 && tensor % shared != 0))
    report.Add(kStructure, absl::StrCat("mesh.tensor is ", tensor, ", which does not divide ", model.heads(),
                                        " heads, ", shared, " key-value heads and ffn of ", model.ffn()));
}

bool CheckMesh(const v1::Plan& plan, Report& report) {
  const v1::Mesh& mesh = plan.mesh();
  CheckGroupShape(plan, report);
  if (report.count(kStructure) > 0) return false;
  const auto programs = static_cast<uint64_t>(plan.programs_size());
  const uint64_t group = uint64_t{TensorRanks(mesh)} * ContextRanks(mesh);
  const uint64_t groups = uint64_t{mesh.pipeline()} * mesh.data();
  if (groups == 0 || programs % group != 0 || programs / group != groups)
    report.Add(kStructure, absl::StrCat("mesh of ", mesh.pipeline(), " x ", mesh.data(),
                                        group > 1 ? absl::StrCat(" groups of ", group) : "", " ranks but ",
                                        plan.programs_size(), " programs"));
  if (mesh.data() != static_cast<uint32_t>(plan.replicas_size()))
    report.Add(kStructure, absl::StrCat("mesh.data is ", mesh.data(), " but there are ", plan.replicas_size(),
                                        " replicas"));
  return report.count(kStructure) == 0;
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
  uint64_t sum = 0;
  for (uint32_t count : plan.layers_per_stage()) {
    if (count == 0) report.Add(kStructure, "layers_per_stage has a stage without layers");
    sum += count;
  }
  if (sum != layers)
    report.Add(kStructure, absl::StrCat("layers_per_stage adds up to ", sum, " but the model has ", layers));
  if (plan.layers_per_stage_size() < static_cast<int>(plan.mesh().pipeline()))
    report.Add(kStructure, absl::StrCat("layers_per_stage has ", plan.layers_per_stage_size(),
                                        " stages for a pipeline of ", plan.mesh().pipeline()));
  return report.count(kStructure) == 0;
}

void CheckRecompute(const v1::Plan& plan, Report& report) {
  for (int replica = 0; replica < plan.replicas_size(); ++replica) {
    for (int m = 0; m < plan.replicas(replica).micro_batches_size(); ++m) {
      const v1::MicroBatch& micro_batch = plan.replicas(replica).micro_batches(m);
      const std::string name = absl::StrCat("replica ", replica, ", micro-batch ", m, ": ");
      if (micro_batch.recompute_size() != plan.layers_per_stage_size()) {
        report.Add(kStructure, absl::StrCat(name, "recompute has ", micro_batch.recompute_size(),
                                            " entries for ", plan.layers_per_stage_size(), " stages"));
        continue;
      }
      for (int stage = 0; stage < plan.layers_per_stage_size(); ++stage) {
        const v1::StageRecompute& recompute = micro_batch.recompute(stage);
        if (uint64_t{recompute.full_layers()} + recompute.selective_layers() > plan.layers_per_stage(stage))
          report.Add(kStructure, absl::StrCat(name, "stage ", stage, " recomputes more layers than it has"));
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

}  // namespace

bool CheckStructure(const v1::Batch& batch, const v1::Plan& plan, Report& report) {
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
  CheckRecompute(plan, report);
  return CheckPrograms(plan, report);
}

}  // namespace penstock::core::verify
