#include "planner/cli/trace_recorder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/files/files.h"
#include "planner/cli/plan_messages.h"
#include "planner/core/clocks/align_clocks.h"

namespace penstock::cli {
namespace {

using Iterations = std::deque<v1::GetIterationResponse>;
using TimesByRank = std::vector<std::vector<InstructionTime>>;

// By the wall clock of each rank, since `origin_unix_ns`.
TimesByRank TimesOf(const v1::GetIterationResponse& iteration, int64_t origin_unix_ns) {
  TimesByRank times(iteration.plan().programs_size());
  for (const v1::ReportIterationRequest& report : iteration.reports()) {
    if (report.rank() >= times.size()) continue;
    const int64_t offset = report.started_unix_ns() - origin_unix_ns;
    for (const v1::MeasuredInstruction& measured : report.instructions()) {
      times[report.rank()].push_back({.id = measured.id(),
                                      .start_ns = offset + measured.start_ns(),
                                      .duration_ns = measured.duration_ns()});
    }
  }
  return times;
}

int64_t EarliestStart(const TimesByRank& times) {
  int64_t earliest = std::numeric_limits<int64_t>::max();
  for (const std::vector<InstructionTime>& of_rank : times)
    for (const InstructionTime& time : of_rank) earliest = std::min(earliest, time.start_ns);
  return earliest == std::numeric_limits<int64_t>::max() ? 0 : earliest;
}

void Move(const core::RankClock& clock, std::vector<InstructionTime>& times) {
  for (InstructionTime& time : times) {
    const int64_t end_ns = clock.ToReference(time.start_ns + time.duration_ns);
    time.start_ns = clock.ToReference(time.start_ns);
    time.duration_ns = std::max<int64_t>(0, end_ns - time.start_ns);
  }
}

// Times of all iterations, and the clocks that they were put right with.
struct AlignedTimes {
  std::vector<TimesByRank> times;
  std::vector<core::ClockSet> clocks;
};

AlignedTimes Align(const Iterations& iterations) {
  AlignedTimes aligned;
  if (iterations.empty()) return aligned;
  // Small numbers: doubles do not hold nanoseconds since 1970.
  const int64_t origin_unix_ns =
      iterations.front().reports().empty() ? 0 : iterations.front().reports(0).started_unix_ns();
  std::vector<std::vector<core::ClockMessage>> messages;
  uint32_t ranks = 0;
  for (const v1::GetIterationResponse& iteration : iterations) {
    aligned.times.push_back(TimesOf(iteration, origin_unix_ns));
    messages.push_back(MessagesOf(iteration.plan(), aligned.times.back()));
    ranks = std::max(ranks, static_cast<uint32_t>(iteration.plan().programs_size()));
  }
  aligned.clocks = core::AlignClocks(ranks, messages);
  for (size_t i = 0; i < aligned.times.size(); ++i)
    for (size_t rank = 0; rank < aligned.times[i].size(); ++rank)
      Move(aligned.clocks[i][rank], aligned.times[i][rank]);
  return aligned;
}

}  // namespace

void TraceRecorder::Add(v1::GetIterationResponse iteration) {
  if (iteration.reports().empty()) return;
  bytes_ += iteration.ByteSizeLong();
  iterations_.push_back(std::move(iteration));
  while (bytes_ > most_bytes_ && iterations_.size() > 1) {
    bytes_ -= iterations_.front().ByteSizeLong();
    iterations_.pop_front();
    ++forgotten_;
  }
}

std::string TraceRecorder::ToJson() const {
  Trace trace;
  AlignedTimes aligned = Align(iterations_);
  const int64_t zero_ns = aligned.times.empty() ? 0 : EarliestStart(aligned.times.front());
  for (size_t i = 0; i < iterations_.size(); ++i) {
    for (std::vector<InstructionTime>& of_rank : aligned.times[i])
      for (InstructionTime& time : of_rank) time.start_ns -= zero_ns;
    const v1::Plan& plan = iterations_[i].plan();
    trace.AddMeasured(plan, aligned.times[i], iterations_[i].profile());
    trace.AddPlannedBeside(plan, EarliestStart(aligned.times[i]));
  }
  return trace.ToJson();
}

absl::Status TraceRecorder::Write(const std::string& path) const {
  return WriteFileAtomically(path, ToJson());
}

std::string TraceRecorder::ClockNote() const {
  double offset_ns = 0;
  double uncertainty_ns = 0;
  for (const core::ClockSet& clocks : Align(iterations_).clocks) {
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
