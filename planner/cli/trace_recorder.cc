#include "planner/cli/trace_recorder.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/files/files.h"
#include "planner/core/timeline/aligned_times.h"
#include "planner/core/timeline/core_shares.h"

namespace penstock::cli {

void TraceRecorder::Add(v1::GetIterationResponse iteration) {
  if (iteration.reports().empty()) return;
  bytes_ += iteration.ByteSizeLong();
  held_.push_back(std::move(iteration));
  while (bytes_ > most_bytes_ && held_.size() > 1) {
    bytes_ -= held_.front().ByteSizeLong();
    held_.pop_front();
    ++forgotten_;
  }
}

std::vector<const v1::GetIterationResponse*> TraceRecorder::Recorded() const {
  std::vector<const v1::GetIterationResponse*> recorded;
  for (const v1::GetIterationResponse& iteration : held_) recorded.push_back(&iteration);
  return recorded;
}

std::vector<core::MeasuredIteration> TraceRecorder::Measurements() const {
  std::vector<core::MeasuredIteration> measurements;
  for (const v1::GetIterationResponse& iteration : held_) {
    core::MeasuredIteration& measured = measurements.emplace_back(
        core::MeasuredIteration{.plan = &iteration.plan(), .profile = &iteration.profile()});
    for (const v1::ReportIterationRequest& report : iteration.reports()) measured.reports.push_back(&report);
  }
  return measurements;
}

std::string TraceRecorder::ToJson() const {
  Trace trace;
  const std::vector<core::MeasuredIteration> measurements = Measurements();
  core::AlignedTimes aligned = core::AlignTimes(measurements);
  const int64_t zero_ns = aligned.times.empty() ? 0 : core::EarliestStart(aligned.times.front());
  for (size_t i = 0; i < measurements.size(); ++i) {
    for (std::vector<InstructionTime>& of_rank : aligned.times[i])
      for (InstructionTime& time : of_rank) time.start_ns -= zero_ns;
    const v1::Plan& plan = *measurements[i].plan;
    trace.AddMeasured(plan, aligned.times[i], *measurements[i].profile, core::CoreSharesOf(measurements[i]));
    for (int rank = 0; rank < plan.programs_size(); ++rank) {
      const core::BatchWait& wait = aligned.waits[i][rank];
      if (wait.duration_ns > 0) trace.AddBatchWait(plan, rank, wait.start_ns - zero_ns, wait.duration_ns);
    }
    trace.AddPlannedBeside(plan, core::EarliestStart(aligned.times[i]));
  }
  return trace.ToJson();
}

absl::Status TraceRecorder::Write(const std::string& path) const {
  return WriteFileAtomically(path, ToJson());
}

std::string TraceRecorder::ClockNote() const {
  double offset_ns = 0;
  double uncertainty_ns = 0;
  for (const core::ClockSet& clocks : core::AlignTimes(Measurements()).clocks) {
    for (const core::RankClock& clock : clocks) {
      offset_ns = std::max(offset_ns, std::abs(clock.offset_ns));
      if (clock.offset_ns != 0) uncertainty_ns = std::max(uncertainty_ns, clock.uncertainty_ns);
    }
  }
  if (offset_ns == 0) return "";
  return absl::StrFormat(
      "clocks of ranks are up to %.3f ms from rank 0's: put right by what ranks sent each other, to within "
      "%.3f ms",
      offset_ns / 1e6, uncertainty_ns / 1e6);
}

}  // namespace penstock::cli
