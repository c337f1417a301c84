#include "worker/runtime/wrong_clock.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/logging/logging.h"

namespace penstock::worker {
namespace {

void LogTrueTimes(uint64_t iteration, const IterationResult& result) {
  int64_t began = std::numeric_limits<int64_t>::max();
  int64_t ended = 0;
  for (const MeasuredInstruction& measured : result.instructions) {
    began = std::min(began, measured.start_ns);
    ended = std::max(ended, measured.start_ns + measured.duration_ns);
  }
  if (result.instructions.empty()) return;
  LogInfo("true times", {{"iteration", iteration},
                         {"began_unix_ns", result.started_unix_ns + began},
                         {"ended_unix_ns", result.started_unix_ns + ended}});
}

}  // namespace

WrongClock::WrongClock(const std::vector<ClockError>& errors, uint32_t rank) : tried_out_(!errors.empty()) {
  const auto own = std::ranges::find(errors, rank, &ClockError::rank);
  if (own != errors.end()) error_ = *own;
}

int64_t WrongClock::ByThisClock(int64_t true_ns) const {
  const double gained = error_.drift_ppm * 1e-6 * static_cast<double>(true_ns - *first_unix_ns_);
  return true_ns + std::llround(error_.seconds * 1e9 + gained);
}

void WrongClock::Read(uint64_t iteration, IterationResult* result) {
  if (!tried_out_) return;
  LogTrueTimes(iteration, *result);
  const int64_t started_ns = result->started_unix_ns;
  if (!first_unix_ns_.has_value()) first_unix_ns_ = started_ns;
  result->started_unix_ns = ByThisClock(started_ns);
  const auto since_start = [&](int64_t ns) { return ByThisClock(started_ns + ns) - result->started_unix_ns; };
  for (MeasuredInstruction& measured : result->instructions) {
    const int64_t end_ns = since_start(measured.start_ns + measured.duration_ns);
    measured.start_ns = since_start(measured.start_ns);
    measured.duration_ns = end_ns - measured.start_ns;
    if (measured.exchange_ns.has_value())
      measured.exchange_ns = std::min(*measured.exchange_ns, measured.duration_ns);
  }
  result->duration_ns = since_start(result->duration_ns);
}

}  // namespace penstock::worker
