// What a profile is measured on.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const MeasuredDevice device, OpenMeasuredDevice("cuda:0"));
//   const NanosecondClock clock = AfterWaiting(device.wait, SteadyNanoseconds);   // reads when the GPU is
//   done
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace penstock::worker {

// Nanoseconds since some fixed time.
using NanosecondClock = std::function<double()>;
double SteadyNanoseconds();
// Of the calling thread, while it computes: what others do on its core is not in it.
double ThreadNanoseconds();

// What passes are measured with, and what is left of the time for measuring: a thread that others keep from
// its core gets little of the former for much of the latter.
struct MeasuringClocks {
  NanosecondClock work;
  NanosecondClock budget;
  // One thread computes all on a core that it should have for itself: that it has not tells of others.
  bool own_core = false;
};

// The thread's own time, unless others keep it from its core for long: then a part of the time that passes.
NanosecondClock BudgetClock();

// Bytes of this machine.
int64_t HostMemoryBytes();

struct MeasuredDevice {
  c10::Device place = c10::kCPU;
  // Blocks until the device has done all that it was given: kernels run beside the host that starts them.
  std::function<void()> wait = [] {};
  // Of the device, whoever uses it.
  int64_t memory_bytes = HostMemoryBytes();
};

// "cpu" or "cuda:N". Possible errors: INVALID_ARGUMENT (names --device: not such a name, or no such GPU).
absl::StatusOr<MeasuredDevice> OpenMeasuredDevice(const std::string& name);

// Reads `clock` after `wait` has returned, each time.
NanosecondClock AfterWaiting(std::function<void()> wait, NanosecondClock clock);

}  // namespace penstock::worker
