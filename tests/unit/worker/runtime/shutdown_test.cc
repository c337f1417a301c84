#include "worker/runtime/shutdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "common/process/stop_signals.h"
#include "worker/runtime/epoch_stop.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLongGrace = absl::Seconds(60);

// Waits for the one call of a handler.
class Probe {
 public:
  Shutdown::Handler handler() {
    return [this](const absl::Status& why) { promise_.set_value(why); };
  }
  absl::Status Wait() {
    std::future<absl::Status> future = promise_.get_future();
    if (future.wait_for(std::chrono::seconds(20)) != std::future_status::ready) return absl::OkStatus();
    return future.get();
  }

 private:
  std::promise<absl::Status> promise_;
};

TEST(Shutdown, ARequestCallsTheHandlersWithTheFirstReason) {
  Probe probe;
  Shutdown shutdown(kLongGrace);
  shutdown.AddHandler(probe.handler());
  EXPECT_TRUE(shutdown.reason().ok());
  shutdown.Request(absl::UnavailableError("rank 2 was lost"));
  shutdown.Request(absl::UnavailableError("something later"));
  EXPECT_EQ(probe.Wait(), absl::UnavailableError("rank 2 was lost"));
  EXPECT_EQ(shutdown.reason(), absl::UnavailableError("rank 2 was lost"));
  EXPECT_FALSE(shutdown.signalled());
}

TEST(Shutdown, AHandlerAddedAfterTheRequestIsCalledToo) {
  Probe probe;
  Shutdown shutdown(kLongGrace);
  shutdown.Request(absl::UnavailableError("gone"));
  shutdown.AddHandler(probe.handler());
  EXPECT_FALSE(probe.Wait().ok());
}

TEST(Shutdown, AFirstSignalIsOnlyNotedWhileTheWorkerStopsSoftly) {
  BlockStopSignals();
  Shutdown shutdown(kLongGrace);
  Probe probe;
  shutdown.AddHandler(probe.handler());
  {
    const SoftStop soft(shutdown, absl::Minutes(10));
    EXPECT_TRUE(shutdown.wanted().ok());
    kill(getpid(), SIGTERM);
    while (shutdown.wanted().ok()) std::this_thread::yield();
    EXPECT_EQ(shutdown.wanted(), absl::CancelledError("stopped by SIGTERM"));
    EXPECT_TRUE(shutdown.reason().ok());
    EXPECT_FALSE(shutdown.signalled());
  }
  EXPECT_EQ(shutdown.reason(), absl::CancelledError("stopped by SIGTERM"));
  EXPECT_TRUE(shutdown.signalled());
  EXPECT_EQ(probe.Wait(), absl::CancelledError("stopped by SIGTERM"));
}

TEST(Shutdown, ASecondSignalEndsTheSoftStop) {
  BlockStopSignals();
  Shutdown shutdown(kLongGrace);
  const SoftStop soft(shutdown, absl::Minutes(10));
  kill(getpid(), SIGTERM);
  while (shutdown.wanted().ok()) std::this_thread::yield();
  kill(getpid(), SIGINT);
  EXPECT_EQ(shutdown.WaitFor(absl::Minutes(1)), absl::CancelledError("stopped by SIGINT"));
  EXPECT_TRUE(shutdown.signalled());
}

TEST(Shutdown, ASoftStopHasItsTime) {
  BlockStopSignals();
  Shutdown shutdown(kLongGrace);
  const SoftStop soft(shutdown, absl::Milliseconds(1));
  kill(getpid(), SIGTERM);
  EXPECT_EQ(shutdown.WaitFor(absl::Minutes(1)), absl::CancelledError("stopped by SIGTERM"));
}

TEST(Shutdown, ARequestDoesNotWaitForASoftStop) {
  Shutdown shutdown(kLongGrace);
  const SoftStop soft(shutdown, absl::Minutes(10));
  shutdown.Request(absl::UnavailableError("rank 2 was lost"));
  EXPECT_EQ(shutdown.wanted(), absl::UnavailableError("rank 2 was lost"));
  EXPECT_EQ(shutdown.reason(), absl::UnavailableError("rank 2 was lost"));
}

TEST(Shutdown, ASignalIsARequest) {
  BlockStopSignals();
  Probe probe;
  Shutdown shutdown(kLongGrace);
  shutdown.AddHandler(probe.handler());
  kill(getpid(), SIGTERM);
  EXPECT_THAT(std::string(probe.Wait().message()), HasSubstr("SIGTERM"));
  EXPECT_TRUE(shutdown.signalled());
}

TEST(Shutdown, NoHandlerRunsAfterDisarm) {
  bool called = false;
  Shutdown shutdown(kLongGrace);
  shutdown.Disarm();
  shutdown.AddHandler([&](const absl::Status&) { called = true; });
  shutdown.Request(absl::UnavailableError("gone"));
  shutdown.Disarm();
  EXPECT_FALSE(called);
}

TEST(Shutdown, AHandlerThatWasRemovedDoesNotRun) {
  bool called = false;
  Probe probe;
  Shutdown shutdown(kLongGrace);
  shutdown.RemoveHandler(shutdown.AddHandler([&](const absl::Status&) { called = true; }));
  shutdown.AddHandler(probe.handler());
  shutdown.Request(absl::UnavailableError("gone"));
  EXPECT_FALSE(probe.Wait().ok());
  EXPECT_FALSE(called);
}

TEST(Shutdown, ARequestEndsAWait) {
  Shutdown shutdown(kLongGrace);
  EXPECT_TRUE(shutdown.WaitFor(absl::ZeroDuration()).ok());
  std::thread requester([&] { shutdown.Request(absl::CancelledError("stopped by SIGTERM")); });
  EXPECT_EQ(shutdown.WaitFor(absl::Minutes(10)), absl::CancelledError("stopped by SIGTERM"));
  requester.join();
}

TEST(EpochStop, AbortsWhatIsUnderWayOrComesLater) {
  Shutdown shutdown(kLongGrace);
  std::vector<std::string> aborted;
  const auto abort = [&](const absl::Status& why) { aborted.emplace_back(why.message()); };
  EpochStop early(shutdown, kLongGrace);
  early.SetAbort(abort);
  EXPECT_TRUE(aborted.empty());
  early.Request(absl::UnavailableError("rank 2 was lost"));
  early.Request(absl::UnavailableError("rank 1 is gone"));
  EpochStop late(shutdown, kLongGrace);
  late.Request(absl::UnavailableError("rank 3 was lost"));
  late.SetAbort(abort);
  EXPECT_THAT(aborted, ElementsAre("rank 2 was lost", "rank 3 was lost"));
  EXPECT_TRUE(shutdown.reason().ok());
}

TEST(EpochStopDeathTest, AWorkerThatIsStuckInAFailedEpochIsStopped) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Shutdown shutdown(kLongGrace);
        // This one was over in time.
        EpochStop(shutdown, absl::ZeroDuration()).SetAbort([](const absl::Status&) {});
        EpochStop stop(shutdown, absl::Milliseconds(20));
        stop.Request(absl::UnavailableError("rank 2 was lost"));
        for (;;) pause();
      },
      ::testing::ExitedWithCode(1), "rank 2 was lost");
}

TEST(ShutdownDeathTest, AWorkerThatDoesNotEndInTimeIsStopped) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Shutdown shutdown(absl::Milliseconds(20));
        shutdown.Request(absl::UnavailableError("rank 2 was lost"));
        for (;;) pause();
      },
      ::testing::ExitedWithCode(1), "rank 2 was lost");
}

}  // namespace
}  // namespace penstock::worker
