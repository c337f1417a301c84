// What is to be expected of a plan: with noise the mean, else what it takes exactly.
#pragma once

#include <cstdint>

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

inline int64_t ExpectedNs(const v1::Prediction& predicted) {
  return predicted.expected_ns() > 0 ? predicted.expected_ns() : predicted.makespan_ns();
}

}  // namespace penstock::core
