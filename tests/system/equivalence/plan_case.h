// The jobs whose results are compared with the reference: every combination of a model, a policy, a schedule,
// a layout of stages, a mesh with and without stage groups, recompute and a precision that workers run.
#pragma once

#include <cstdint>
#include <ostream>
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
  // Whether tokens have weights in the loss, and samples tasks.
  bool weighted = false;
  // What the reference depends on, beside the rows.
  std::string reference;
  double tolerance = 0;
};

// For failures.
inline void PrintTo(const PlanCase& plan_case, std::ostream* out) { *out << plan_case.name; }

// Which cases are run: a seeded covering set (covering_set.h) of all pairs; of all triples with
// PENSTOCK_EQUIVALENCE=triples in the environment; with PENSTOCK_EQUIVALENCE=product the product of what
// issue 23 names (GPT, Llama and T5, tensor and context degree, pipeline, replicas, schedule, recompute and
// division of the state), each with a policy, a layout of stages and weights of tokens that are drawn; every
// combination with PENSTOCK_EQUIVALENCE=all. The last two are shuffled.
enum class Coverage : uint8_t { kPairs, kTriples, kProduct, kAll };
Coverage WantedCoverage();
std::vector<PlanCase> PlanCases(Coverage coverage);

// A covering set of all pairs of those whose micro-batches may have parts: ranks divide experts, and nothing
// but samples else. Of kPairs and kProduct without policies, schedules and types to which parts are the same
// as to others.
std::vector<PlanCase> PlanCasesForParts(Coverage coverage);

// As many of all combinations, drawn by the seed.
std::vector<PlanCase> RandomPlanCases(size_t count, uint64_t seed);

// The same of those with stage groups whose memory follows from lengths alone: of decoder-only models without
// experts, and without shares of parameters.
std::vector<PlanCase> RandomStageGroupCases(size_t count, uint64_t seed);

}  // namespace penstock::testing
