// A stranger who reaches rank 0's store while ranks meet there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/worker/comm_testing.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(20);

class RendezvousGuardTest : public ::testing::Test {
 protected:
  CommunicatorOptions Options(uint32_t rank, char secret = 's') const {
    CommunicatorOptions options = server_.Options(rank, 2);
    options.secret = std::string(32, secret);
    options.epoch = 1;
    options.connect_timeout = std::chrono::milliseconds(2000);
    return options;
  }

  c10::intrusive_ptr<c10d::Store> Stranger() const {
    c10d::TCPStoreOptions options;
    options.port =
        static_cast<uint16_t>(std::stoi(server_.address().substr(server_.address().find(':') + 1)));
    options.waitWorkers = false;
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }

  // Both ranks, side by side.
  std::vector<absl::Status> Join(const CommunicatorOptions& first, const CommunicatorOptions& second) {
    std::vector<absl::Status> outcomes(2);
    std::vector<std::unique_ptr<Communicator>> communicators(2);
    const auto join = [&](size_t rank, const CommunicatorOptions& options) {
      auto made = MakeGlooCommunicator(options);
      outcomes[rank] = made.status();
      if (made.ok()) communicators[rank] = *std::move(made);
    };
    std::thread other([&] { join(1, second); });
    join(0, first);
    other.join();
    return outcomes;
  }

  // Blocks until the workers have put something into the store.
  static std::vector<std::string> AwaitKeys(c10d::Store& store) {
    const absl::Time deadline = absl::Now() + kDeadline;
    std::vector<std::string> keys;
    while (keys.empty() && absl::Now() < deadline) keys = store.listKeys();
    return keys;
  }

  const CommTestServer server_;
};

TEST_F(RendezvousGuardTest, RanksWithTheSecretMeet) {
  for (const absl::Status& outcome : Join(Options(0), Options(1))) EXPECT_THAT(outcome, IsOk());
}

TEST_F(RendezvousGuardTest, ARankWithoutTheSecretMeetsNobody) {
  for (const absl::Status& outcome : Join(Options(0), Options(1, 'x')))
    EXPECT_EQ(outcome.code(), absl::StatusCode::kUnavailable) << outcome;
}

TEST_F(RendezvousGuardTest, AnAddressThatAStrangerHasReplacedEndsTheMeetingWithItsReason) {
  std::thread rank0(
      [&] { EXPECT_EQ(MakeGlooCommunicator(Options(0)).status().code(), absl::StatusCode::kUnavailable); });
  const auto stranger = Stranger();
  const std::vector<std::string> keys = AwaitKeys(*stranger);
  EXPECT_FALSE(keys.empty());
  for (const std::string& key : keys) stranger->set(key, std::string("6.6.6.6:666"));
  EXPECT_THAT(MakeGlooCommunicator(Options(1)).status(),
              Fails(absl::StatusCode::kUnavailable, "was not made by a worker of this epoch"));
  rank0.join();
}

TEST_F(RendezvousGuardTest, WhatAStrangerAddsIsNotLookedAt) {
  const auto stranger = Stranger();
  for (const char* key : {"epoch 1/gloo 0, 1/0", "epoch 1/gloo 0, 1/0/0", "epoch 1/gloo 0, 1/rank_0", "0/0"})
    stranger->set(key, std::string("6.6.6.6:666"));
  for (int i = 0; i < 1000; ++i) stranger->set(std::to_string(i), std::string(1000, 'x'));
  for (const absl::Status& outcome : Join(Options(0), Options(1))) EXPECT_THAT(outcome, IsOk());
}

TEST_F(RendezvousGuardTest, RankZeroWaitsUntilAllHaveJoined) {
  CommunicatorOptions first = Options(0);
  first.connect_timeout = std::chrono::milliseconds(500);
  EXPECT_THAT(AwaitAllJoined(first), Fails(absl::StatusCode::kUnavailable, "waiting for all ranks"));
  EXPECT_THAT(AwaitAllJoined(Options(1)), IsOk());
  EXPECT_THAT(AwaitAllJoined(first), IsOk());
}

}  // namespace
}  // namespace penstock::worker
