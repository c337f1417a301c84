#include "planner/core/contract/reshard_durations.h"

#include <algorithm>
#include <limits>
#include <map>

#include "planner/core/contract/passes.h"
#include "planner/core/contract/plan_of_mesh.h"

namespace penstock::core {
namespace {

int64_t EndOf(const v1::Instruction& instruction) {
  return instruction.expected_start_ns() + instruction.expected_duration_ns();
}

// On a stage of a rank.
struct OuterPasses {
  const v1::Instruction* first = nullptr;
  const v1::Instruction* last = nullptr;
};

std::map<uint32_t, OuterPasses> OuterPassesOf(const v1::Program& program) {
  std::map<uint32_t, OuterPasses> of_stages;
  for (const v1::Instruction& instruction : program.instructions()) {
    if (!IsPass(instruction.op())) continue;
    OuterPasses& passes = of_stages[instruction.stage()];
    if (passes.first == nullptr) passes.first = &instruction;
    passes.last = &instruction;
  }
  return of_stages;
}

}  // namespace

StageOfRank StageOfRankIn(const v1::Program& program, uint32_t stage, const v1::Plan& plan) {
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

ReshardDurations ReshardDurationsOf(const v1::Plan& plan, const ReshardTime& time) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  // `up_to_end`: with the last pass of all still to be taken off.
  double from_begin = kNone, up_to_end = kNone;
  int64_t end_ns = 0;
  for (const v1::Program& program : plan.programs()) {
    for (const auto& [stage, passes] : OuterPassesOf(program)) {
      const StageOfRank place = StageOfRankIn(program, stage, plan);
      const int64_t begin_ns = passes.first->expected_start_ns() - EndOf(program.instructions(0));
      from_begin = std::min(from_begin, static_cast<double>(begin_ns) +
                                            time.LeadNs(passes.first->expected_duration_ns(), place));
      up_to_end = std::min(up_to_end, time.LeadNs(passes.last->expected_duration_ns(), place) -
                                          static_cast<double>(EndOf(*passes.last)));
      end_ns = std::max(end_ns, EndOf(*passes.last));
    }
  }
  if (from_begin == kNone) return {.parameters_ns = time.whole_ns, .gradients_ns = time.whole_ns};
  return {.parameters_ns = time.LeftNs(from_begin),
          .gradients_ns = time.LeftNs(static_cast<double>(end_ns) + up_to_end)};
}

}  // namespace penstock::core
