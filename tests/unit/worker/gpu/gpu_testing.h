// What tests on GPUs share. A test that needs more of them than there are is skipped, and says so.
#pragma once

#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <string>

namespace penstock::worker {

int CountGpus();
// "needs 2 GPUs, this machine has 1".
std::string LacksGpus(int needed);

inline c10::Device Gpu(int number) { return {c10::kCUDA, static_cast<c10::DeviceIndex>(number)}; }

// Blocks until the GPU has done all that it was given.
void WaitForGpu(int number);

}  // namespace penstock::worker

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): GTEST_SKIP returns from the test.
#define PENSTOCK_NEEDS_GPUS(count) \
  if (CountGpus() < (count)) GTEST_SKIP() << LacksGpus(count)
