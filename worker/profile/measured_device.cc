#include "worker/profile/measured_device.h"

#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/device/thread_clock.h"
#include "worker/torch/boundary.h"
#include "worker/torch/place.h"

namespace penstock::worker {
namespace {

// How long measuring may take where the thread has to wait for its core, as a multiple.
constexpr double kMostWait = 3;

MeasuredDevice DeviceAt(c10::Device place) {
  if (place.is_cpu()) return {};
  // The first tensor starts the device, or says that there is none.
  at::empty({1}, at::TensorOptions(place));
  const size_t total = c10::getDeviceAllocator(place.type())->getMemoryInfo(place.index()).second;
  return {.place = place,
          .wait = [place] { c10::impl::VirtualGuardImpl(place.type()).synchronizeDevice(place.index()); },
          .memory_bytes = static_cast<int64_t>(total)};
}

}  // namespace

double SteadyNanoseconds() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double ThreadNanoseconds() { return static_cast<double>(ThreadCoreNs()); }

NanosecondClock BudgetClock() {
  return [thread = ThreadNanoseconds(), wall = SteadyNanoseconds()] {
    return std::max(ThreadNanoseconds() - thread, (SteadyNanoseconds() - wall) / kMostWait);
  };
}

int64_t HostMemoryBytes() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE); }

absl::StatusOr<MeasuredDevice> OpenMeasuredDevice(const std::string& name) {
  PENSTOCK_ASSIGN_OR_RETURN(const at::Device place, PlaceOf(name));
  const std::string flag = absl::StrCat("--device ", name);
  if (!c10::impl::hasDeviceGuardImpl(place.type())) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": this worker was built without it: take one of the cuda preset"));
  }
  absl::StatusOr<MeasuredDevice> device = CallTorch(flag, [&] { return DeviceAt(place); });
  if (device.ok()) return device;
  return absl::InvalidArgumentError(std::string(device.status().message()));
}

NanosecondClock AfterWaiting(std::function<void()> wait, NanosecondClock clock) {
  return [wait = std::move(wait), clock = std::move(clock)] {
    wait();
    return clock();
  };
}

}  // namespace penstock::worker
