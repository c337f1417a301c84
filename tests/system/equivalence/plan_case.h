// The jobs whose results are compared with the reference: every combination of a model, a policy, a schedule,
// a layout of stages, a mesh, recompute and a precision that workers run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/v1/job.pb.h"
#include "tests/system/equivalence/reference.h"

namespace penstock::testing {

struct Precision {
  const char* name;
  v1::DataType dtype;
  uint32_t bytes;
  // Largest difference, relative to the largest value of the reference.
  double tolerance;
};

// One layer in a model of 8: enough for two stages on each of 4 ranks.
struct PlanCase {
  // Unique; letters and digits.
  std::string name;
  v1::JobSpec job;
  ReferenceModel model;
  // What the reference of whole samples depends on.
  std::string reference;
  double tolerance = 0;
};

// A seeded covering set of all pairs (covering_set.h); with PENSTOCK_EQUIVALENCE=all in the environment every
// combination, shuffled.
std::vector<PlanCase> PlanCases();

}  // namespace penstock::testing
