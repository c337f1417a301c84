// Rule 6, memory: every kind of damage is found by the rule it breaks, with a message that names the place.
#include "tests/unit/verify/plan_edits.h"
#include "tests/unit/verify/plan_sealing.h"
#include "tests/unit/verify/planted_damage.h"

namespace penstock::core {
namespace {

// Rule 6: memory.

TEST_F(PlantedDamage, MemoryOverTheLimit) {
  const v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  int64_t needed = plan().programs(0).static_memory_bytes() + forward.memory_acquired_bytes();
  for (uint32_t id = 0; id < forward.id(); ++id) {
    const v1::Instruction& before = plan().programs(0).instructions(static_cast<int>(id));
    needed += before.memory_acquired_bytes() - before.memory_released_bytes();
  }
  plan().mutable_programs(0)->set_memory_limit_bytes(needed - 1);
  ExpectViolationAt(6, 0, forward, "of " + std::to_string(needed - 1) + " are in use");
}

// As soon as its stream allows, a RECV takes its bytes while passes run that are listed before it.
class PlantedDamageInTightMemory : public PlantedDamage {
 protected:
  PlantedDamageInTightMemory() {
    for (v1::Program& program : *plan().mutable_programs()) program.set_memory_limit_bytes(PeakOf(program));
    Seal(&plan());
  }

  void ClearDepsOfRecvs(int rank) {
    for (v1::Instruction& instruction : *plan().mutable_programs(rank)->mutable_instructions())
      if (instruction.op() == v1::OP_RECV) instruction.clear_deps();
  }
};

TEST_F(PlantedDamageInTightMemory, IsValidBefore) {
  EXPECT_TRUE(CheckPlan(planned_.batch(), planned_.plan()).empty());
}

TEST_F(PlantedDamageInTightMemory, RecvsThatMayBePostedTooEarly) {
  ClearDepsOfRecvs(0);
  // The gradients come one after the other as soon as the last activation has gone.
  ExpectViolationAt(6, 0, Get(0, v1::OP_WAIT, 2, 2), "transfers that need not wait for it may take");
}

TEST_F(PlantedDamageInTightMemory, RecvThatWaitsForTooLittle) {
  v1::Instruction& recv = Get(0, v1::OP_RECV, 1, 1);
  recv.set_deps(0, Get(0, v1::OP_FORWARD, 0).id());
  ExpectViolationAt(6, 0, Get(0, v1::OP_WAIT, 0, 1), "transfers that need not wait for it may take");
}

TEST_F(PlantedDamageInTightMemory, EarlyRecvsDoNoHarmWhereThereIsRoom) {
  for (int rank = 0; rank < plan().programs_size(); ++rank) {
    ClearDepsOfRecvs(rank);
    plan().mutable_programs(rank)->set_memory_limit_bytes(1'000'000);
  }
  Seal(&plan());
  EXPECT_TRUE(CheckPlan(planned_.batch(), planned_.plan()).empty());
}

TEST_F(PlantedDamage, StaticMemoryOverTheLimit) {
  plan().mutable_programs(0)->set_memory_limit_bytes(4999);
  ExpectViolation(6, "rank 0: static_memory_bytes is 5000, the limit is 4999");
}

TEST_F(PlantedDamage, MissingFree) {
  Remove(plan(), 0, Get(0, v1::OP_FREE, 1).id());
  ExpectViolationAt(6, 0, Get(0, v1::OP_SEND, 1), "there is no FREE");
  ExpectViolation(6, "rank 0: micro-batch 1 on stage 0 never gives back");
}

TEST_F(PlantedDamage, MemoryNeverGivenBack) {
  v1::Instruction& backward = Get(0, v1::OP_BACKWARD, 1);
  backward.set_memory_released_bytes(backward.memory_released_bytes() - 5);
  ExpectViolation(6, "rank 0: micro-batch 1 on stage 0 never gives back 5 bytes");
}

TEST_F(PlantedDamage, DoubleRelease) {
  v1::Instruction& backward = Get(0, v1::OP_BACKWARD, 1);
  backward.set_memory_released_bytes(2 * backward.memory_released_bytes());
  ExpectViolationAt(6, 0, backward, "it gives back");
}

TEST_F(PlantedDamage, NegativeMemory) {
  v1::Instruction& backward = Get(0, v1::OP_BACKWARD, 1);
  backward.set_memory_acquired_bytes(-1);
  ExpectViolationAt(6, 0, backward, "is negative");
}

TEST_F(PlantedDamage, ActivationOfNoBytes) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  v1::Instruction& backward = Get(0, v1::OP_BACKWARD, 1);
  backward.set_memory_released_bytes(backward.memory_released_bytes() - forward.memory_acquired_bytes());
  forward.set_memory_acquired_bytes(0);
  ExpectViolationAt(6, 0, forward, "memory_acquired_bytes is 0, expected at least the");
}

TEST_F(PlantedDamage, GradientOfNoBytes) {
  v1::Instruction& backward = Get(1, v1::OP_BACKWARD, 1);
  backward.set_memory_released_bytes(backward.memory_released_bytes() - backward.memory_acquired_bytes());
  backward.set_memory_acquired_bytes(0);
  ExpectViolationAt(6, 1, backward, "memory_acquired_bytes is 0, expected at least the");
}

TEST_F(PlantedDamage, ReceivedBytesThatAreNotThoseOfTheTransfer) {
  v1::Instruction& recv = Get(1, v1::OP_RECV, 1);
  recv.set_memory_acquired_bytes(recv.memory_acquired_bytes() - 4);
  ExpectViolationAt(6, 1, recv, "expected " + std::to_string(recv.transfer().bytes()));
}

TEST_F(PlantedDamage, FreedBytesThatAreNotThoseOfTheTransfer) {
  v1::Instruction& release = Get(0, v1::OP_FREE, 1);
  release.set_memory_released_bytes(release.memory_released_bytes() - 4);
  ExpectViolationAt(6, 0, release, "memory_released_bytes is");
}

TEST_F(PlantedDamage, LoadedBytesThatAreNotThoseOfTheTokens) {
  v1::Instruction& load = Get(0, v1::OP_LOAD, 1);
  load.set_memory_acquired_bytes(8);
  ExpectViolationAt(6, 0, load, "memory_acquired_bytes is 8, expected");
}

TEST_F(PlantedDamageInEncoderDecoder, LoadedBytesOfTheFirstDecoderStage) {
  v1::Instruction& load = Get(2, v1::OP_LOAD, 1);
  load.set_memory_acquired_bytes(0);
  ExpectViolationAt(6, 2, load, "memory_acquired_bytes is 0, expected");
}

TEST_F(PlantedDamage, WaitThatTakesMemory) {
  v1::Instruction& wait = Get(0, v1::OP_WAIT, 1, 2);
  wait.set_memory_acquired_bytes(8);
  ExpectViolationAt(6, 0, wait, "memory_acquired_bytes is 8, expected 0");
}

TEST_F(PlantedDamage, FreeOfWhatWasNotLent) {
  v1::Instruction& release = Get(0, v1::OP_FREE, 1);
  release.set_part(1);
  ExpectViolationAt(6, 0, release, "there is no SEND whose buffer it could give back");
}

}  // namespace
}  // namespace penstock::core
