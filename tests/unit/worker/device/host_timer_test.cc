// What a rank on a CPU says of the cores that its passes had.
#include <gtest/gtest.h>

#include <memory>
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

}  // namespace
}  // namespace penstock::worker
