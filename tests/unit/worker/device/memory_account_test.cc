#include "worker/device/simulated/memory_account.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace penstock::worker {
namespace {

constexpr int64_t kStatic = 70;

Instruction Takes(uint32_t id, int64_t acquired, int64_t released) {
  Instruction instruction;
  instruction.id = id;
  instruction.memory_acquired_bytes = acquired;
  instruction.memory_released_bytes = released;
  return instruction;
}

Program ProgramOf(std::vector<Instruction> instructions) {
  Program program;
  program.instructions = std::move(instructions);
  program.static_memory_bytes = kStatic;
  return program;
}

MeasuredInstruction Ran(uint32_t id, int64_t start_ns, int64_t end_ns) {
  return {.id = id, .start_ns = start_ns, .duration_ns = end_ns - start_ns};
}

TEST(PeakOfAccount, OfARankWithoutInstructionsIsWhatItAlwaysHas) {
  EXPECT_EQ(PeakOfAccount(ProgramOf({}), {}), kStatic);
}

TEST(PeakOfAccount, WhatRunsAtTheSameTimeAddsUp) {
  const Program program = ProgramOf({Takes(0, 10, 0), Takes(1, 5, 5), Takes(2, 0, 10)});
  EXPECT_EQ(PeakOfAccount(program, {Ran(0, 0, 4), Ran(1, 2, 6), Ran(2, 6, 8)}), kStatic + 15);
}

TEST(PeakOfAccount, WhatEndsGivesBackBeforeTheNextOneTakes) {
  const Program program = ProgramOf({Takes(0, 10, 10), Takes(1, 8, 8)});
  EXPECT_EQ(PeakOfAccount(program, {Ran(0, 0, 4), Ran(1, 4, 6)}), kStatic + 10);
  EXPECT_EQ(PeakOfAccount(program, {Ran(0, 0, 4), Ran(1, 3, 6)}), kStatic + 18);
}

}  // namespace
}  // namespace penstock::worker
