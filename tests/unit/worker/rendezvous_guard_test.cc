// A stranger who reaches rank 0's store while ranks meet there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/worker/comm_testing.h"
#include "worker/comm/communicator.h"
#include "worker/rendezvous/timed_socket.h"

namespace penstock::worker {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(20);
constexpr size_t kHeldByStranger = 300;
const std::string kSecret(32, 's');

class RendezvousGuardTest : public ::testing::Test {
 protected:
  CommunicatorOptions Options(uint32_t rank, const std::string& secret = kSecret) const {
    CommunicatorOptions options = server_.Options(rank, 2);
    options.secret = secret;
    options.epoch = 1;
    options.connect_timeout = std::chrono::milliseconds(2000);
    return options;
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

  // Connects to the table and says something there, again and again.
  void Disturb(const std::string& words, const std::atomic<bool>& stop) const {
    const auto port =
        static_cast<uint16_t>(std::stoi(server_.address().substr(server_.address().find(':') + 1)));
    std::vector<FileDescriptor> held;
    while (!stop) {
      auto socket = ConnectTo("127.0.0.1", port, absl::Now() + kDeadline);
      if (!socket.ok()) continue;
      SendAll(socket->get(), words, absl::Now() + kDeadline).IgnoreError();
      held.push_back(*std::move(socket));
      if (held.size() > kHeldByStranger) held.clear();
    }
  }

  const CommTestServer server_{kSecret};
};

TEST_F(RendezvousGuardTest, RanksWithTheSecretMeet) {
  for (const absl::Status& outcome : Join(Options(0), Options(1))) EXPECT_THAT(outcome, IsOk());
}

TEST_F(RendezvousGuardTest, ARankWithoutTheSecretMeetsNobody) {
  std::vector<CommunicatorOptions> options = {Options(0), Options(1, std::string(32, 'x'))};
  for (CommunicatorOptions& one : options) one.connect_timeout = kInVain;
  for (const absl::Status& outcome : Join(options[0], options[1]))
    EXPECT_EQ(outcome.code(), absl::StatusCode::kUnavailable) << outcome;
}

TEST_F(RendezvousGuardTest, RanksMeetBesideAStrangerAtTheTable) {
  for (const std::string& words :
       {std::string(), std::string(64, 'x'), std::string("\0\xCE\xF7\x85\x3C\x11", 6)}) {
    std::atomic<bool> stop = false;
    std::thread stranger([&] { Disturb(words, stop); });
    for (uint64_t epoch = 1; epoch <= 5; ++epoch) {
      std::vector<CommunicatorOptions> options = {Options(0), Options(1)};
      for (CommunicatorOptions& one : options) one.epoch = epoch * 10 + words.size();
      for (const absl::Status& outcome : Join(options[0], options[1])) EXPECT_THAT(outcome, IsOk());
    }
    stop = true;
    stranger.join();
  }
}

TEST_F(RendezvousGuardTest, RankZeroWaitsUntilAllHaveJoined) {
  CommunicatorOptions first = Options(0);
  first.connect_timeout = kInVain;
  EXPECT_THAT(AwaitAllJoined(first), Fails(absl::StatusCode::kUnavailable, "waiting for all ranks"));
  EXPECT_THAT(AwaitAllJoined(Options(1)), IsOk());
  EXPECT_THAT(AwaitAllJoined(Options(0)), IsOk());
}

}  // namespace
}  // namespace penstock::worker
