#include "common/grpc/spare_descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "common/logging/logging.h"

namespace penstock {
namespace {

// gRPC accepts some 100 connections in the shortest time between two looks, on a fast machine: half as many
// as it is reckoned with.
constexpr absl::Duration kShortestPause = absl::Milliseconds(5);
constexpr absl::Duration kLongestPause = absl::Milliseconds(200);
constexpr int64_t kAcceptedPerMillisecond = 40;
// Connections that wait at the port are accepted, refused or not: so many at most.
constexpr size_t kMostWaiting = 1024;
constexpr size_t kWaitingPart = 16;
// Of the descriptors that the process may have, so many are not for connections.
constexpr size_t kSparedPart = 2;
constexpr size_t kMostSpared = 8192;

size_t Limit() {
  rlimit limit = {};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

// How many descriptors are taken at least: the kernel gives out the lowest that is free.
size_t Taken(size_t limit) {
  const int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  if (lowest < 0) return limit;
  close(lowest);
  return static_cast<size_t>(lowest);
}

}  // namespace

SpareDescriptors::SpareDescriptors(Listeners listeners) : listeners_(std::move(listeners)), limit_(Limit()) {
  const size_t waiting = std::clamp<size_t>(limit_ / kWaitingPart, 1, kMostWaiting);
  listeners_.LimitWaiting(static_cast<int>(waiting)).IgnoreError();
  if (limit_ > 0) ticker_ = std::make_unique<Ticker>("descriptors", [this] { return Look(); });
}

absl::Duration SpareDescriptors::Look() {
  const size_t taken = Taken(limit_);
  const size_t spared = std::min(limit_ / kSparedPart, kMostSpared);
  const bool refuse = taken + spared >= limit_;
  // What is opened again is not closed at the next connection.
  if (refuse != refuses_ && (refuse || taken + spared + spared / 4 < limit_)) Refuse(refuse, taken);
  if (refuse) return kShortestPause;
  return std::clamp(
      absl::Milliseconds(1) * static_cast<int64_t>(limit_ - spared - taken) / kAcceptedPerMillisecond,
      kShortestPause, kLongestPause);
}

void SpareDescriptors::Refuse(bool refuse, size_t taken) {
  const absl::Status changed = refuse ? listeners_.Refuse() : listeners_.Hear();
  if (!changed.ok()) return;
  refuses_ = refuse;
  if (refuse) {
    LogWarning("too many connections: who comes new is not heard (raise ulimit -n, or keep strangers out)",
               {{"descriptors", taken}, {"limit", limit_}});
  } else {
    LogInfo("there is room for connections again", {{"descriptors", taken}, {"limit", limit_}});
  }
}

}  // namespace penstock
