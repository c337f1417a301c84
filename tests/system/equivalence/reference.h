// Training written a second time, in the plainest way, on one device and in one process: sample by sample,
// with tensor operations of LibTorch, in float64. Shares nothing with worker/ but the initial values of the
// parameters.
//
// Plain values only, so that this header goes together with protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/program/job.h"

namespace penstock::testing {

struct ReferenceSample {
  std::vector<int32_t> input;
  std::vector<int32_t> target;
};

struct ReferenceIteration {
  // Of the whole global batch: cross entropy summed over its loss positions, divided by their number.
  double loss = 0;
  // Before clipping.
  double gradient_norm = 0;
  // By parameter, row-major, before clipping.
  std::map<std::string, std::vector<double>> gradients;
};

// Trains on the global batches from iteration 0 on.
std::vector<ReferenceIteration> TrainReference(const worker::JobConfig& job,
                                               const std::vector<std::vector<ReferenceSample>>& batches);

}  // namespace penstock::testing
