#include "worker/runtime/executor.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/memory/tensor_memory.h"
#include "worker/program/describe.h"
#include "worker/runtime/finite_search.h"
#include "worker/runtime/iteration.h"

namespace penstock::worker {
namespace {

std::string NameOf(const Program& program) {
  return absl::StrCat(program.forward_only ? "the validation of " : "", "iteration ", program.iteration);
}

// The program must be for the stages that this worker built.
absl::Status CheckStages(const Program& program, const ExecutorParts& parts) {
  for (uint32_t stage : program.stages) {
    if (parts.stages.contains(stage)) continue;
    return absl::InternalError(
        absl::StrCat("the program works for stage ", stage, ", which is not on this rank"));
  }
  return absl::OkStatus();
}

}  // namespace

Executor::Executor(ExecutorParts parts, std::shared_ptr<TokenReader> tokens)
    : parts_(std::move(parts)),
      tokens_(tokens != nullptr
                  ? std::move(tokens)
                  : std::make_shared<TokenReader>(parts_.device, parts_.job->model, parts_.group->place())) {}

absl::Status Executor::RunInstructions(const Program& program, Iteration& iteration) const {
  const std::string where = NameOf(program);
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(parts_.order->Start(program), where));
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(parts_.timer->StartIteration(program), where));
  for (const Instruction& instruction : program.instructions) {
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(parts_.order->Prepare(instruction), where));
    absl::Status status = parts_.timer->Begin(instruction);
    parts_.group->TakeWaitedNs();
    if (status.ok()) status = iteration.Execute(instruction);
    if (instruction.joint) parts_.timer->Exchanged(parts_.group->TakeWaitedNs());
    if (status.ok()) status = parts_.timer->End(instruction);
    if (!status.ok()) return AnnotateError(status, absl::StrCat(where, ", ", Describe(program, instruction)));
  }
  return absl::OkStatus();
}

absl::Status Executor::Explain(const Program& program, const std::string& what) {
  for (const auto& [number, stage] : parts_.stages) stage->ZeroGradients();
  const std::string where = NameOf(program);
  FiniteSearch search(parts_.stages, *parts_.group);
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(search.LookAtParameters(), where));
  Iteration again(parts_, program, *tokens_, &search);
  PENSTOCK_RETURN_IF_ERROR(RunInstructions(program, again));
  IterationResult same;
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(again.Finish(same), where));
  const absl::StatusOr<std::string> cause = search.Conclude(program.rank, parts_.job->topology.WorldGroup(),
                                                            *parts_.communicator, parts_.device->place());
  if (!cause.ok()) return AnnotateError(cause.status(), where);
  return absl::OutOfRangeError(absl::StrCat(
      where, ": ", what, " is not finite, which began at ", *cause,
      "; no parameter was changed. Try a lower learning rate (--lr), a longer warm-up (--warmup) "
      "or a smaller --clip-norm"));
}

absl::StatusOr<IterationResult> Executor::Run(const Program& program) {
  PENSTOCK_RETURN_IF_ERROR(CheckStages(program, parts_));
  const std::string where = NameOf(program);
  ResetPeakTensorBytes(parts_.device->place());
  IterationResult result;
  auto iteration = std::make_unique<Iteration>(parts_, program, *tokens_);
  PENSTOCK_RETURN_IF_ERROR(RunInstructions(program, *iteration));
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(iteration->Finish(result), where));
  if (const std::string what = iteration->not_finite(); !what.empty()) {
    // Its buffers have to go first: the second time needs as many.
    iteration.reset();
    return Explain(program, what);
  }
  PENSTOCK_ASSIGN_OR_RETURN(IterationTimes times, parts_.timer->Finish());
  result.peak_memory_bytes =
      times.peak_memory_bytes > 0 ? times.peak_memory_bytes : PeakTensorBytes(parts_.device->place());
  for (const auto& [_, stage] : parts_.stages) {
    const ExpertLoads loads = stage->TakeExpertLoads();
    result.expert_load = std::max(result.expert_load, loads.fullest);
    result.expert_rows.insert(result.expert_rows.end(), loads.rows.begin(), loads.rows.end());
    result.fullest_expert_rows.insert(result.fullest_expert_rows.end(), loads.fullest_rows.begin(),
                                      loads.fullest_rows.end());
    result.routed_expert_rows += loads.routed;
    result.dropped_expert_rows += loads.dropped;
    const RouterLosses losses = stage->TakeRouterLosses();
    result.router_balance_loss += losses.balance;
    result.router_z_loss += losses.z;
  }
  result.started_unix_ns = times.started_unix_ns;
  result.duration_ns = times.duration_ns;
  result.lone_pass_ns = times.lone_pass_ns;
  result.lone_pass_core_ns = times.lone_pass_core_ns;
  result.instructions = std::move(times.instructions);
  return result;
}

}  // namespace penstock::worker
