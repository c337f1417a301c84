// What hosts take between passes, told from reports.
#include "planner/core/calibrate/time_beside_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// Instructions that begin and end at these times, in the order in which the program has them.
class TimeBesidePassesTest : public testing::Test {
 protected:
  uint32_t Add(v1::Op op, int64_t start_ns, int64_t end_ns) {
    const auto id = static_cast<uint32_t>(program_.instructions_size());
    v1::Instruction* const instruction = program_.add_instructions();
    instruction->set_id(id);
    instruction->set_op(op);
    v1::MeasuredInstruction* const measured = report_.add_instructions();
    measured->set_id(id);
    measured->set_start_ns(start_ns);
    measured->set_duration_ns(end_ns - start_ns);
    return id;
  }
  void AddWait(uint32_t transfer, int64_t start_ns, int64_t end_ns) {
    const uint32_t id = Add(v1::OP_WAIT, start_ns, end_ns);
    program_.mutable_instructions(static_cast<int>(id))->set_transfer_id(transfer);
  }
  std::map<uint32_t, int64_t> Times() const { return TimeBesidePasses(program_, report_); }

 private:
  v1::Program program_;
  v1::ReportIterationRequest report_;
};

TEST_F(TimeBesidePassesTest, IsWhatNoInstructionTookAndLoadingAndFreeing) {
  const uint32_t first = Add(v1::OP_FORWARD, 0, 100);
  Add(v1::OP_FREE, 110, 113);
  Add(v1::OP_LOAD, 113, 120);
  const uint32_t second = Add(v1::OP_BACKWARD_INPUT, 121, 200);
  Add(v1::OP_BACKWARD_WEIGHT, 204, 300);
  EXPECT_THAT(Times(), ElementsAre(Pair(first, 10 + 3 + 7 + 1), Pair(second, 4)));
}

TEST_F(TimeBesidePassesTest, IsWithoutWaitingForWhatOtherRanksSend) {
  const uint32_t received = Add(v1::OP_RECV, 0, 150);
  const uint32_t pass = Add(v1::OP_FORWARD, 0, 100);
  AddWait(received, 105, 150);
  Add(v1::OP_BACKWARD, 152, 200);
  EXPECT_THAT(Times(), ElementsAre(Pair(pass, 5 + 2)));
}

// As the simulator has it, where waiting takes no time.
TEST_F(TimeBesidePassesTest, IsWithoutTheTimeBeforeAWaitThatBeginsWhenItIsOver) {
  const uint32_t received = Add(v1::OP_RECV, 0, 150);
  const uint32_t pass = Add(v1::OP_FORWARD, 0, 100);
  AddWait(received, 150, 150);
  Add(v1::OP_BACKWARD, 150, 200);
  EXPECT_THAT(Times(), ElementsAre(Pair(pass, 0)));
}

TEST_F(TimeBesidePassesTest, HoldsTransfersThatAreBegunBetweenPassesWhateverTheyTake) {
  const uint32_t pass = Add(v1::OP_FORWARD, 0, 100);
  Add(v1::OP_SEND, 130, 900);
  Add(v1::OP_BACKWARD, 160, 200);
  EXPECT_THAT(Times(), ElementsAre(Pair(pass, 60)));
}

// What others are waited for in does not count.
TEST_F(TimeBesidePassesTest, IsNotKnownOfThePassBeforeACollective) {
  Add(v1::OP_BACKWARD, 0, 100);
  Add(v1::OP_REDUCE_GRADIENTS, 500, 510);
  Add(v1::OP_OPTIMIZER_STEP, 600, 700);
  EXPECT_THAT(Times(), IsEmpty());
}

}  // namespace
}  // namespace penstock::core
