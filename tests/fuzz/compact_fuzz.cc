// Columns of a program make nobody crash, and take no more memory than a program that makes sense; what is
// read is packed and read again to the same.
#include <cstdlib>
#include <vector>

#include "common/compact/deflate.h"
#include "common/compact/instruction_columns.h"
#include "penstock/v1/compact.pb.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/unit/verify/plan_fixture.h"

namespace penstock {
namespace {

const std::vector<uint64_t> kTokens = {20, 30, 7};
constexpr size_t kMost = 4096;

v1::InstructionColumns Valid(uint32_t seed) {
  core::FixtureOptions options;
  options.split_backward = seed % 2 == 1;
  options.context = 1 + static_cast<int>(seed / 2 % 2);
  options.stages_per_rank = 1 + static_cast<int>(seed / 4 % 2);
  const v1::PlannedBatch planned = core::MakeValidPlan(options);
  v1::InstructionColumns columns;
  columns.ParseFromString(
      *Inflate(*PackInstructions(planned.plan().programs(0).instructions(), kTokens), kMostColumnBytes));
  return columns;
}

void Judge(const v1::InstructionColumns& columns) {
  Instructions instructions;
  if (!UnpackInstructions(Deflate(columns.SerializeAsString()), kTokens, kMost, &instructions).ok()) return;
  const auto packed = PackInstructions(instructions, kTokens);
  Instructions again;
  if (!packed.has_value() || !UnpackInstructions(*packed, kTokens, kMost, &again).ok()) std::abort();
  if (again.size() != instructions.size()) std::abort();
  for (int id = 0; id < again.size(); ++id)
    if (again.at(id).SerializeAsString() != instructions.at(id).SerializeAsString()) std::abort();
}

}  // namespace
}  // namespace penstock

FUZZ_MESSAGE_MUTATOR(penstock::v1::InstructionColumns, penstock::Valid)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  penstock::v1::InstructionColumns columns;
  if (columns.ParseFromArray(data, static_cast<int>(size))) penstock::Judge(columns);
  return 0;
}
