#include "planner/core/calibrate/time_beside_passes.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "planner/core/contract/passes.h"

namespace penstock::core {
namespace {

enum class Role : uint8_t { kPass, kHost, kWait, kBeside, kOther };

Role RoleOf(v1::Op op) {
  if (IsPass(op)) return Role::kPass;
  switch (op) {
    case v1::OP_LOAD:
    case v1::OP_FREE:
      return Role::kHost;
    case v1::OP_WAIT:
      return Role::kWait;
    // They go on while the rank computes; beginning them is in the time between the others.
    case v1::OP_SEND:
    case v1::OP_RECV:
      return Role::kBeside;
    default:
      return Role::kOther;
  }
}

int64_t EndOf(const v1::MeasuredInstruction& measured) {
  return measured.start_ns() + measured.duration_ns();
}

}  // namespace

std::map<uint32_t, int64_t> TimeBesidePasses(const v1::Program& program,
                                             const v1::ReportIterationRequest& report) {
  std::vector<const v1::MeasuredInstruction*> in_order;
  std::map<uint32_t, int64_t> end_of;
  for (const v1::MeasuredInstruction& measured : report.instructions()) {
    in_order.push_back(&measured);
    end_of[measured.id()] = EndOf(measured);
  }
  std::ranges::stable_sort(in_order, {}, &v1::MeasuredInstruction::start_ns);
  std::map<uint32_t, int64_t> beside;
  std::optional<uint32_t> pass;
  int64_t end_ns = 0;
  for (const v1::MeasuredInstruction* measured : in_order) {
    const v1::Instruction& instruction = program.instructions(static_cast<int>(measured->id()));
    const Role role = RoleOf(instruction.op());
    if (role == Role::kBeside) continue;
    // Some ranks begin to wait when what they wait for is there.
    if (role == Role::kWait) {
      const auto awaited = end_of.find(instruction.transfer_id());
      if (awaited != end_of.end() && awaited->second <= measured->start_ns())
        end_ns = std::max(end_ns, awaited->second);
    }
    // Others are waited for before it begins, too.
    if (role == Role::kOther) pass.reset();
    if (pass.has_value()) {
      beside[*pass] += std::max<int64_t>(0, measured->start_ns() - end_ns);
      if (role == Role::kHost) beside[*pass] += measured->duration_ns();
    }
    end_ns = EndOf(*measured);
    if (role == Role::kPass) pass = measured->id();
  }
  return beside;
}

}  // namespace penstock::core
