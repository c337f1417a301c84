#include "planner/core/timeline/computed_time.h"

#include <algorithm>
#include <cmath>

#include "common/mesh/rank_places.h"
#include "planner/core/contract/passes.h"

namespace penstock::core {

std::optional<ComputedTime> ComputedTimeOf(const v1::Plan& plan, const v1::Program& program,
                                           const v1::Instruction& instruction, const InstructionTime& time,
                                           double slow_factor) {
  if (!time.exchange_ns.has_value() || !IsPass(instruction.op()) || !instruction.has_collective())
    return std::nullopt;
  if (MeshOfReplica(plan, program.replica()).expert() > 1) return std::nullopt;
  const v1::PassExchange& exchange = instruction.exchange();
  const int64_t own_ns = std::llround(static_cast<double>(instruction.own_duration_ns()) / slow_factor);
  const int64_t expected_ns = own_ns - exchange.tensor_ns() - exchange.context_exposed_ns();
  const int64_t computed_ns = time.duration_ns - *time.exchange_ns;
  // A rank that has no row of the micro-batch has nothing to do.
  if (expected_ns <= 0 || computed_ns <= 0) return std::nullopt;
  return ComputedTime{.ns = computed_ns, .expected_ns = expected_ns};
}

}  // namespace penstock::core
