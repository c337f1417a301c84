#include "planner/cli/trace_recorder.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "common/files/files.h"

namespace penstock::cli {
namespace {

int64_t EarliestStart(const v1::GetIterationResponse& iteration) {
  int64_t earliest = std::numeric_limits<int64_t>::max();
  for (const auto& report : iteration.reports()) earliest = std::min(earliest, report.started_unix_ns());
  return earliest;
}

}  // namespace

void TraceRecorder::Add(const v1::GetIterationResponse& iteration) {
  if (iteration.reports().empty()) return;
  const int64_t start_unix_ns = EarliestStart(iteration);
  if (!origin_unix_ns_.has_value()) origin_unix_ns_ = start_unix_ns;
  std::vector<std::vector<InstructionTime>> times(iteration.plan().programs_size());
  for (const v1::ReportIterationRequest& report : iteration.reports()) {
    if (report.rank() >= times.size()) continue;
    const int64_t offset = report.started_unix_ns() - *origin_unix_ns_;
    for (const v1::MeasuredInstruction& measured : report.instructions()) {
      times[report.rank()].push_back({.id = measured.id(),
                                      .start_ns = offset + measured.start_ns(),
                                      .duration_ns = measured.duration_ns()});
    }
  }
  trace_.AddMeasured(iteration.plan(), times, iteration.profile());
  trace_.AddPlannedBeside(iteration.plan(), start_unix_ns - *origin_unix_ns_);
}

absl::Status TraceRecorder::Write(const std::string& path) const {
  return WriteFileAtomically(path, trace_.ToJson());
}

}  // namespace penstock::cli
