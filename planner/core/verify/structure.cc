// Rule 0: sizes, ranges, ids and keys.
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

bool CheckMesh(const v1::Plan& plan, Report& report) {
  const v1::Mesh& mesh = plan.mesh();
  if (mesh.tensor() > 1 || mesh.context() > 1)
    report.Add(kStructure, "mesh.tensor and mesh.context are reserved and must be 0 or 1");
  const uint64_t ranks = uint64_t{mesh.pipeline()} * mesh.data();
  if (ranks == 0 || ranks != static_cast<uint64_t>(plan.programs_size()))
    report.Add(kStructure, absl::StrCat("mesh of ", mesh.pipeline(), " x ", mesh.data(), " ranks but ",
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
  const bool whole_iteration =
      instruction.op() == v1::OP_REDUCE_GRADIENTS || instruction.op() == v1::OP_OPTIMIZER_STEP;
  const uint32_t micro_batches =
      whole_iteration ? 1 : plan.replicas(static_cast<int>(program.replica())).micro_batches_size();
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
  CheckRecompute(plan, report);
  return CheckPrograms(plan, report);
}

}  // namespace penstock::core::verify
