#include "worker/runtime/executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/memory/tensor_memory.h"
#include "worker/program/describe.h"
#include "worker/runtime/iteration.h"

namespace penstock::worker {
namespace {

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

absl::StatusOr<IterationResult> Executor::Run(const Program& program) {
  PENSTOCK_RETURN_IF_ERROR(CheckStages(program, parts_));
  const std::string where = absl::StrCat("iteration ", program.iteration);
  ResetPeakTensorBytes(parts_.device->place());
  Iteration iteration(parts_, program);
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(parts_.timer->StartIteration(program), where));
  for (const Instruction& instruction : program.instructions) {
    absl::Status status = parts_.timer->Begin(instruction);
    if (status.ok()) status = iteration.Execute(instruction);
    if (status.ok()) status = parts_.timer->End(instruction);
    if (!status.ok()) return AnnotateError(status, absl::StrCat(where, ", ", Describe(program, instruction)));
  }
  IterationResult result;
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(iteration.Finish(result), where));
  PENSTOCK_ASSIGN_OR_RETURN(IterationTimes times, parts_.timer->Finish());
  result.peak_memory_bytes = PeakTensorBytes(parts_.device->place());
  result.started_unix_ns = times.started_unix_ns;
  result.duration_ns = times.duration_ns;
  result.instructions = std::move(times.instructions);
  return result;
}

}  // namespace penstock::worker
