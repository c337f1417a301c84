// A tensor as plain values, row-major.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace penstock::testing {

struct PlainTensor {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

using NamedTensors = std::map<std::string, PlainTensor>;

}  // namespace penstock::testing
