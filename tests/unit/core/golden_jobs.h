// Jobs whose plans must be the same, bit for bit, on every machine and in every build.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/core/random_job.h"

namespace penstock::core {

struct GoldenJob {
  std::string name;
  RandomPlanningCase given;
};

// GPT and T5, every policy and schedule, with and without stage groups, few and many samples. All can be
// planned.
std::vector<GoldenJob> GoldenJobs();

// Those of them that a test plans many times: under sanitizers, which look for wrong memory, each sixth one.
std::vector<GoldenJob> JobsToRepeat();

}  // namespace penstock::core
