#include "planner/core/timeline/aligned_times.h"

#include <algorithm>
#include <limits>

#include "planner/core/timeline/plan_messages.h"

namespace penstock::core {
namespace {

// By the wall clock of each rank, since `origin_unix_ns`.
TimesByRank TimesOf(const MeasuredIteration& iteration, int64_t origin_unix_ns) {
  TimesByRank times(iteration.plan->programs_size());
  for (const v1::ReportIterationRequest* report : iteration.reports) {
    if (report->rank() >= times.size()) continue;
    const int64_t offset = report->started_unix_ns() - origin_unix_ns;
    for (const v1::MeasuredInstruction& measured : report->instructions()) {
      InstructionTime& time =
          times[report->rank()].emplace_back(InstructionTime{.id = measured.id(),
                                                             .start_ns = offset + measured.start_ns(),
                                                             .duration_ns = measured.duration_ns()});
      if (measured.has_exchange_ns()) time.exchange_ns = measured.exchange_ns();
    }
  }
  return times;
}

std::vector<BatchWait> WaitsOf(const MeasuredIteration& iteration, int64_t origin_unix_ns) {
  std::vector<BatchWait> waits(iteration.plan->programs_size());
  for (const v1::ReportIterationRequest* report : iteration.reports) {
    if (report->rank() >= waits.size()) continue;
    const int64_t waited_ns = report->waited_for_program_ns();
    waits[report->rank()] = {.start_ns = report->started_unix_ns() - waited_ns - origin_unix_ns,
                             .duration_ns = waited_ns};
  }
  return waits;
}

uint64_t EpochOf(const MeasuredIteration& iteration) {
  return iteration.reports.empty() ? 0 : iteration.reports.front()->epoch();
}

// A rank waits for its next batch once it is done with the one before. Simulated ranks tell waits by the wall
// clock, and all else in simulated time, which may stand still meanwhile: they have waited for nothing.
void BeginBehind(const TimesByRank& before, std::vector<BatchWait>& waits) {
  for (size_t rank = 0; rank < std::min(before.size(), waits.size()); ++rank) {
    BatchWait& wait = waits[rank];
    const int64_t end_ns = wait.start_ns + wait.duration_ns;
    for (const InstructionTime& time : before[rank])
      wait.start_ns = std::max(wait.start_ns, time.start_ns + time.duration_ns);
    wait.duration_ns = std::max<int64_t>(0, end_ns - wait.start_ns);
  }
}

void Move(const RankClock& clock, std::vector<InstructionTime>& times) {
  for (InstructionTime& time : times) {
    const int64_t end_ns = clock.ToReference(time.start_ns + time.duration_ns);
    time.start_ns = clock.ToReference(time.start_ns);
    time.duration_ns = std::max<int64_t>(0, end_ns - time.start_ns);
  }
}

}  // namespace

AlignedTimes AlignTimes(absl::Span<const MeasuredIteration> iterations) {
  AlignedTimes aligned;
  if (iterations.empty()) return aligned;
  // Small numbers: doubles do not hold nanoseconds since 1970.
  const int64_t origin_unix_ns =
      iterations.front().reports.empty() ? 0 : iterations.front().reports.front()->started_unix_ns();
  std::vector<std::vector<ClockMessage>> messages;
  uint32_t ranks = 0;
  for (const MeasuredIteration& iteration : iterations) {
    aligned.times.push_back(TimesOf(iteration, origin_unix_ns));
    aligned.waits.push_back(WaitsOf(iteration, origin_unix_ns));
    messages.push_back(MessagesOf(*iteration.plan, aligned.times.back()));
    ranks = std::max(ranks, static_cast<uint32_t>(iteration.plan->programs_size()));
  }
  aligned.clocks = AlignClocks(ranks, messages);
  for (size_t i = 0; i < aligned.times.size(); ++i) {
    for (size_t rank = 0; rank < aligned.times[i].size(); ++rank) {
      Move(aligned.clocks[i][rank], aligned.times[i][rank]);
      BatchWait& wait = aligned.waits[i][rank];
      wait.start_ns = aligned.clocks[i][rank].ToReference(wait.start_ns);
    }
    if (i > 0 && EpochOf(iterations[i - 1]) == EpochOf(iterations[i]))
      BeginBehind(aligned.times[i - 1], aligned.waits[i]);
    else
      aligned.waits[i].assign(aligned.waits[i].size(), {});
  }
  return aligned;
}

int64_t EarliestStart(const TimesByRank& times) {
  int64_t earliest = std::numeric_limits<int64_t>::max();
  for (const std::vector<InstructionTime>& of_rank : times)
    for (const InstructionTime& time : of_rank) earliest = std::min(earliest, time.start_ns);
  return earliest == std::numeric_limits<int64_t>::max() ? 0 : earliest;
}

}  // namespace penstock::core
