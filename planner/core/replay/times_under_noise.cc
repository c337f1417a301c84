#include "planner/core/replay/times_under_noise.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "planner/core/replay/program_set_of_plan.h"
#include "planner/core/schedule/pass_noise.h"
#include "planner/core/simulate/simulator.h"

namespace penstock::core {
namespace {

constexpr double kLate = 0.95;

PassKind PassKindOf(Op op) {
  if (op == Op::kForward) return PassKind::kForward;
  if (op == Op::kBackward) return PassKind::kBackward;
  return op == Op::kBackwardInput ? PassKind::kBackwardInput : PassKind::kBackwardWeight;
}

// `exact`: the instructions as they were planned.
void DrawPasses(absl::Span<const int> replicas, const std::vector<Instruction>& exact, const PassNoise& noise,
                int draw, ProgramSet* programs) {
  for (int rank = 0; rank < programs->ranks(); ++rank) {
    const int replica = replicas[rank];
    for (int32_t i = programs->rank_begin[rank]; i < programs->rank_begin[rank + 1]; ++i) {
      if (!IsPass(exact[i].op)) continue;
      const double factor = noise.Factor(noise.StreamOf(draw, replica, exact[i].stage), exact[i].micro_batch,
                                         PassKindOf(exact[i].op));
      programs->instructions[i].duration_ns =
          std::llround(static_cast<double>(exact[i].duration_ns) * factor);
    }
  }
}

}  // namespace

std::vector<int> ReplicasOf(const v1::Plan& plan) {
  std::vector<int> replicas;
  replicas.reserve(plan.programs_size());
  for (const v1::Program& program : plan.programs()) replicas.push_back(static_cast<int>(program.replica()));
  return replicas;
}

absl::StatusOr<TimesUnderNoise> RunUnderNoise(const v1::Plan& plan, double deviation, uint64_t seed,
                                              int draws, StopToken stop) {
  PENSTOCK_ASSIGN_OR_RETURN(ProgramSet programs, ProgramSetOfPlan(plan));
  return RunUnderNoise(std::move(programs), ReplicasOf(plan), deviation, seed, draws, stop);
}

absl::StatusOr<TimesUnderNoise> RunUnderNoise(ProgramSet programs, absl::Span<const int> replicas,
                                              double deviation, uint64_t seed, int draws, StopToken stop) {
  const std::vector<Instruction> exact = programs.instructions;
  const PassNoise noise(deviation, seed);
  Simulator simulator;
  std::vector<double> makespans;
  for (int draw = 0; draw < draws; ++draw) {
    DrawPasses(replicas, exact, noise, draw, &programs);
    PENSTOCK_RETURN_IF_ERROR(simulator.Run(programs, stop));
    makespans.push_back(static_cast<double>(simulator.makespan_ns()));
  }
  std::ranges::sort(makespans);
  const double sum = std::accumulate(makespans.begin(), makespans.end(), 0.0);
  const auto late = static_cast<size_t>(kLate * static_cast<double>(makespans.size() - 1));
  return TimesUnderNoise{.mean_ns = sum / static_cast<double>(makespans.size()), .late_ns = makespans[late]};
}

}  // namespace penstock::core
