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

// Models have 8 layers: two stages on each of 4 ranks.
struct PlanCase {
  // Unique; letters and digits.
  std::string name;
  v1::JobSpec job;
  ReferenceModel model;
  // What the reference of whole samples depends on.
  std::string reference;
  double tolerance = 0;
};

// A seeded covering set (covering_set.h) of all pairs; of all triples with PENSTOCK_EQUIVALENCE=triples in
// the environment; every combination, shuffled, with PENSTOCK_EQUIVALENCE=all.
std::vector<PlanCase> PlanCases();

// As many of all combinations, drawn by the seed.
std::vector<PlanCase> RandomPlanCases(size_t count, uint64_t seed);

}  // namespace penstock::testing
