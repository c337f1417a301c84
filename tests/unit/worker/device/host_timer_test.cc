// What a rank on a CPU says of the cores that its passes had.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

#include "worker/device/instruction_timer.h"
#include "worker/device/thread_clock.h"

namespace penstock::worker {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

// As long as this thread has a core.
void Compute(int64_t ns) {
  const int64_t end = ThreadCoreNs() + ns;
  while (ThreadCoreNs() < end) {
  }
}

// While another one computes, this thread needs no core.
void WaitForAThreadThatComputes(int64_t ns) {
  std::thread([ns] { Compute(ns); }).join();
}

template <typename Do>
IterationTimes TimesOf(const Instruction& instruction, bool computes_alone, Do what) {
  const std::unique_ptr<InstructionTimer> timer = MakeHostTimer(computes_alone);
  const Program program;
  EXPECT_TRUE(timer->StartIteration(program).ok());
  EXPECT_TRUE(timer->Begin(instruction).ok());
  what();
  EXPECT_TRUE(timer->End(instruction).ok());
  return *timer->Finish();
}

TEST(HostTimerTest, APassThatComputesHasACoreForItsTime) {
  const IterationTimes times =
      TimesOf({.op = Op::kForward}, /*computes_alone=*/true, [] { Compute(20 * kMillisecond); });
  EXPECT_GE(times.lone_pass_core_ns, 20 * kMillisecond);
  EXPECT_LE(times.lone_pass_core_ns, times.lone_pass_ns);
  EXPECT_EQ(times.lone_pass_ns, times.instructions[0].duration_ns);
}

TEST(HostTimerTest, TimeWithoutACoreIsNoneOfThePasss) {
  const IterationTimes times = TimesOf({.op = Op::kBackwardWeight}, /*computes_alone=*/true,
                                       [] { WaitForAThreadThatComputes(20 * kMillisecond); });
  EXPECT_GE(times.lone_pass_ns, 20 * kMillisecond);
  EXPECT_LT(times.lone_pass_core_ns, 10 * kMillisecond);
}

TEST(HostTimerTest, WhatExchangesOrIsNoPassSaysNothing) {
  for (const Instruction& instruction :
       {Instruction{.op = Op::kForward, .joint = true}, Instruction{.op = Op::kOptimizerStep}}) {
    const IterationTimes times = TimesOf(instruction, /*computes_alone=*/true, [] { Compute(kMillisecond); });
    EXPECT_EQ(times.lone_pass_ns, 0);
    EXPECT_EQ(times.lone_pass_core_ns, 0);
  }
}

TEST(HostTimerTest, WhereOtherThreadsComputeTooNobodyKnows) {
  const IterationTimes times =
      TimesOf({.op = Op::kForward}, /*computes_alone=*/false, [] { Compute(kMillisecond); });
  EXPECT_EQ(times.lone_pass_ns, 0);
}

TEST(HostTimerTest, OfAPassOfAGroupItIsSaidHowLongItWaited) {
  const std::unique_ptr<InstructionTimer> timer = MakeHostTimer();
  const Program program;
  ASSERT_TRUE(timer->StartIteration(program).ok());
  const Instruction forward = {.id = 0, .op = Op::kForward, .joint = true};
  const Instruction wait = {.id = 1, .op = Op::kWait};
  const Instruction backward = {.id = 2, .op = Op::kBackward, .joint = true};
  ASSERT_TRUE(timer->Begin(forward).ok());
  Compute(kMillisecond);
  timer->Exchanged(kMillisecond / 4);
  ASSERT_TRUE(timer->End(forward).ok());
  ASSERT_TRUE(timer->Begin(wait).ok());
  ASSERT_TRUE(timer->End(wait).ok());
  // Clocks that are read one after the other: never longer than the pass.
  ASSERT_TRUE(timer->Begin(backward).ok());
  timer->Exchanged(3600 * 1000 * kMillisecond);
  ASSERT_TRUE(timer->End(backward).ok());
  const IterationTimes times = *timer->Finish();
  ASSERT_EQ(times.instructions.size(), 3U);
  EXPECT_EQ(times.instructions[0].exchange_ns, kMillisecond / 4);
  EXPECT_EQ(times.instructions[1].exchange_ns, std::nullopt);
  EXPECT_EQ(times.instructions[2].exchange_ns, times.instructions[2].duration_ns);
}

}  // namespace
}  // namespace penstock::worker
