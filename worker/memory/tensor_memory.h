// How many bytes the tensors of this process take, by the statistics of the allocator that made them.
//
//   CountCpuTensors();                                   // first thing in main
//   ResetPeakTensorBytes(at::kCPU);
//   ... an iteration ...
//   int64_t peak = PeakTensorBytes(at::kCPU);            // what existed at once, at most, since the reset
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace penstock::worker {

// Has tensors on the CPU counted from now on. Call it before the first tensor is made and before there are
// threads. Idempotent.
void CountCpuTensors();

// Bytes of all tensors that exist. CPU: as many as were asked for; 0 before CountCpuTensors. GPU: blocks of
// the caching allocator that are in use. Meta: 0, there is no storage. Any thread.
int64_t TensorBytes(c10::Device device);

// The largest TensorBytes since the last reset (or the start). Any thread.
int64_t PeakTensorBytes(c10::Device device);
void ResetPeakTensorBytes(c10::Device device);

}  // namespace penstock::worker
