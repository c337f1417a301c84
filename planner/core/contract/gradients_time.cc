#include "planner/core/contract/gradients_time.h"

#include <algorithm>
#include <map>
#include <vector>

#include "planner/core/contract/passes.h"
#include "planner/core/contract/plan_of_mesh.h"

namespace penstock::core {
namespace {

int64_t EndOf(const v1::Instruction& instruction) {
  return instruction.expected_start_ns() + instruction.expected_duration_ns();
}

// The last pass on each stage of a rank.
std::map<uint32_t, const v1::Instruction*> LastPasses(const v1::Program& program) {
  std::map<uint32_t, const v1::Instruction*> last;
  for (const v1::Instruction& instruction : program.instructions())
    if (IsPass(instruction.op())) last[instruction.stage()] = &instruction;
  return last;
}

// Of the stage that has the lowest ones of the rank's first.
StageOfRank PlaceOf(const v1::Program& program, uint32_t stage, const v1::Plan& plan) {
  const auto& layers =
      plan.meshes().empty()
          ? plan.layers_per_stage()
          : plan.meshes(MeshOfRank(plan, static_cast<int>(program.rank()))).layers_per_stage();
  StageOfRank place = {.layers = layers.Get(static_cast<int>(stage))};
  for (const uint32_t other : program.stages()) {
    place.layers_of_rank += layers.Get(static_cast<int>(other));
    if (other < stage) place.below += layers.Get(static_cast<int>(other));
  }
  return place;
}

}  // namespace

int64_t GradientsNs(const v1::Plan& plan, const ReshardTime& time) {
  struct LastPass {
    int64_t end_ns = 0;
    double lead_ns = 0;
  };
  std::vector<LastPass> passes;
  int64_t start_ns = 0;
  for (const v1::Program& program : plan.programs()) {
    for (const auto& [stage, pass] : LastPasses(program)) {
      passes.push_back(
          {EndOf(*pass), time.LeadNs(pass->expected_duration_ns(), PlaceOf(program, stage, plan))});
      start_ns = std::max(start_ns, EndOf(*pass));
    }
  }
  if (passes.empty()) return time.whole_ns;
  double lead_ns = static_cast<double>(start_ns - passes.front().end_ns) + passes.front().lead_ns;
  for (const LastPass& pass : passes)
    lead_ns = std::min(lead_ns, static_cast<double>(start_ns - pass.end_ns) + pass.lead_ns);
  return time.GradientsNs(lead_ns);
}

}  // namespace penstock::core
