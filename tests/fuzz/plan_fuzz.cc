// The checker judges any plan; none makes it crash or run for long.
#include "planner/core/verify/check_plan.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/unit/verify/plan_fixture.h"

namespace penstock {
namespace {

v1::PlannedBatch Valid(uint32_t seed) {
  core::FixtureOptions options;
  options.pipeline = 1 + static_cast<int>(seed % 4);
  options.replicas = 1 + static_cast<int>(seed / 4 % 2);
  options.stages_per_rank = 1 + static_cast<int>(seed / 8 % 2);
  options.split_backward = seed / 16 % 2 == 1;
  options.layout = seed / 32 % 2 == 1 ? v1::LAYOUT_PACKED : v1::LAYOUT_PADDED;
  options.architecture =
      options.pipeline % 2 == 0 && seed / 64 % 2 == 1 ? v1::ARCHITECTURE_T5 : v1::ARCHITECTURE_GPT;
  return core::MakeValidPlan(options);
}

}  // namespace
}  // namespace penstock

FUZZ_MESSAGE_MUTATOR(penstock::v1::PlannedBatch, penstock::Valid)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  penstock::v1::PlannedBatch planned;
  if (planned.ParseFromArray(data, static_cast<int>(size)))
    penstock::core::CheckPlan(planned.batch(), planned.plan());
  return 0;
}
