#include "tests/unit/worker/gpu/gpu_testing.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "absl/strings/str_cat.h"

namespace penstock::worker {

int CountGpus() { return c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount(); }

std::string LacksGpus(int needed) {
  return absl::StrCat("needs ", needed, needed == 1 ? " GPU" : " GPUs", ", this machine has ", CountGpus());
}

void WaitForGpu(int number) {
  c10::impl::VirtualGuardImpl(c10::kCUDA).synchronizeDevice(static_cast<c10::DeviceIndex>(number));
}

}  // namespace penstock::worker
