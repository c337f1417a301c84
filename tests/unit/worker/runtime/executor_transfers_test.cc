// When an executor begins transfers, waits for them, and gives their buffers back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/unit/worker/runtime/executor_fixture.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ExecutorTest, ReceivesAnActivationAndSendsItsGradientBack) {
  Build(1, 2);
  AddMicroBatch();
  Add(Op::kLoad);
  AddTransfer(Op::kRecv, TransferKind::kActivation);
  Add(Op::kWait).transfer = 1;
  Add(Op::kForward);
  Add(Op::kBackward);
  AddTransfer(Op::kSend, TransferKind::kGradient);
  Add(Op::kFree).part = static_cast<uint32_t>(FreePart::kInputGradient);
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(communicator_.sent.contains(3));
  EXPECT_THAT(communicator_.sent[3], ElementsAre(8, 8));
}

TEST_F(ExecutorTest, ASendDoesNotWaitForItsEndAndItsBufferLivesUntilItIsFreed) {
  const RecordingTimer& recorder = RecordInstructions();
  Build(0, 2);
  AddMicroBatch();
  Add(Op::kLoad);
  Add(Op::kForward);
  AddTransfer(Op::kSend, TransferKind::kActivation);
  Add(Op::kFree).part = static_cast<uint32_t>(FreePart::kLoadedTokens);
  Add(Op::kWait).transfer = 2;
  Add(Op::kFree).part = static_cast<uint32_t>(FreePart::kOutputActivation);
  ASSERT_TRUE(executor_->Run(program_).ok());
  EXPECT_THAT(events_, ElementsAre("begin LOAD", "end LOAD", "begin FORWARD", "end FORWARD",  //
                                   "begin SEND", "send to 3", "end SEND",                     //
                                   "begin FREE", "end FREE",                                  //
                                   "begin WAIT", "wait: send to 3", "end WAIT",               //
                                   "begin FREE", "end FREE"));
  EXPECT_THAT(recorder.alive_after, ElementsAre("SEND", "FREE", "WAIT")) << "gone at the end of its own FREE";
}

TEST_F(ExecutorTest, AReceivedBufferIsWaitedForBeforeItIsUsedAndGoneAfterwards) {
  const RecordingTimer& recorder = RecordInstructions();
  Build(1, 2);
  AddMicroBatch();
  AddTransfer(Op::kRecv, TransferKind::kActivation);
  Add(Op::kLoad);
  Add(Op::kForward);
  Add(Op::kBackward);
  ASSERT_TRUE(executor_->Run(program_).ok());
  EXPECT_THAT(events_, ElementsAre("begin RECV", "receive from 3", "end RECV", "begin LOAD", "end LOAD",
                                   "begin FORWARD", "wait: receive from 3", "end FORWARD", "begin BACKWARD",
                                   "end BACKWARD"));
  EXPECT_THAT(recorder.alive_after, ::testing::Not(::testing::Contains("BACKWARD")));
}

TEST_F(ExecutorTest, AReceiveIsNotPostedBeforeItsDepsHaveEnded) {
  Build(1, 2);
  AddMicroBatch();
  AddTransfer(Op::kRecv, TransferKind::kActivation);
  AddTransfer(Op::kRecv, TransferKind::kGradient);
  program_.transfers[1].peer = 4;
  program_.instructions[1].deps = {0};
  ASSERT_TRUE(executor_->Run(program_).ok());
  EXPECT_THAT(events_, ElementsAre("receive from 3", "wait: receive from 3", "receive from 4",
                                   "wait: receive from 4"));
}

TEST_F(ExecutorTest, AnIterationDoesNotEndBeforeItsTransfers) {
  Build(0, 2);
  AddMicroBatch();
  Add(Op::kLoad);
  Add(Op::kForward);
  AddTransfer(Op::kSend, TransferKind::kActivation);
  ASSERT_TRUE(executor_->Run(program_).ok());
  EXPECT_THAT(events_, ElementsAre("send to 3", "wait: send to 3"));
}

TEST_F(ExecutorTest, ADependencyOnATransferWaitsForIt) {
  Build(1, 2);
  AddMicroBatch();
  AddTransfer(Op::kRecv, TransferKind::kActivation);
  Add(Op::kLoad).deps = {0};
  communicator_.receive_status = absl::UnavailableError("gone");
  EXPECT_THAT(std::string(executor_->Run(program_).status().message()), HasSubstr("instruction 1 (LOAD"));
}

}  // namespace
}  // namespace penstock::worker
