#include "worker/rendezvous/table_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"
#include "worker/rendezvous/table_client.h"
#include "worker/rendezvous/timed_socket.h"

namespace penstock::worker {
namespace {

constexpr char kHost[] = "127.0.0.1";
constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kSoon = absl::Milliseconds(200);

class TableServerTest : public ::testing::Test {
 protected:
  TableServerTest() {
    auto server = TableServer::Start(kHost, kSecret);
    EXPECT_THAT(server, IsOk());
    server_ = *std::move(server);
  }

  std::unique_ptr<TableClient> Rank() const {
    auto client = TableClient::Connect({kHost, server_->port()}, kSecret, kPatience);
    EXPECT_THAT(client, IsOk());
    return *std::move(client);
  }

  // Has read the challenge of the table.
  FileDescriptor Stranger() const {
    auto socket = ConnectTo(kHost, server_->port(), absl::Now() + kPatience);
    EXPECT_THAT(socket, IsOk());
    EXPECT_THAT(Receive(socket->get(), kChallengeBytes, absl::Now() + kPatience), IsOk());
    return *std::move(socket);
  }

  static TableAnswer Ask(TableClient& rank, const TableRequest& request) {
    const auto answer = rank.Call(request, kPatience);
    EXPECT_THAT(answer, IsOk());
    return answer.value_or(TableAnswer());
  }

  static void Set(TableClient& rank, const std::string& key, const std::string& value) {
    Ask(rank, {.operation = TableOperation::kSet, .keys = {key}, .value = value});
  }

  static std::string Get(TableClient& rank, const std::string& key) {
    return Ask(rank, {.operation = TableOperation::kGet, .keys = {key}}).value;
  }

  const std::string kSecret = std::string(32, 's');
  std::unique_ptr<TableServer> server_;
};

TEST_F(TableServerTest, OneRankReadsWhatAnotherHasSet) {
  const auto one = Rank();
  const auto other = Rank();
  const std::string large(1'000'000, 'x');
  Set(*one, "address", "10.0.0.1:4711");
  Set(*one, "large", large);
  EXPECT_EQ(Get(*other, "address"), "10.0.0.1:4711");
  EXPECT_EQ(Get(*other, "large"), large);
}

TEST_F(TableServerTest, ARankWaitsForAnother) {
  const auto waiting = Rank();
  std::thread other([this] { Set(*Rank(), "late", "here"); });
  EXPECT_TRUE(Ask(*waiting, {.operation = TableOperation::kWait,
                             .keys = {"late"},
                             .number = absl::ToInt64Milliseconds(kPatience)})
                  .found);
  other.join();
  EXPECT_FALSE(Ask(*waiting, {.operation = TableOperation::kWait, .keys = {"never"}, .number = 50}).found);
}

TEST_F(TableServerTest, WhoHasAnotherSecretIsNotServed) {
  EXPECT_THAT(TableClient::Connect({kHost, server_->port()}, "another", kSoon),
              Fails(absl::StatusCode::kUnavailable, "connecting to the rendezvous at 127.0.0.1"));
}

TEST_F(TableServerTest, AStrangerIsHungUpOn) {
  const FileDescriptor stranger = Stranger();
  const absl::Time deadline = absl::Now() + kPatience;
  EXPECT_THAT(SendAll(stranger.get(), std::string(kChallengeBytes + kProofBytes, 'x'), deadline), IsOk());
  EXPECT_THAT(Receive(stranger.get(), 1, deadline), Fails(absl::StatusCode::kUnavailable, ""));
}

TEST_F(TableServerTest, AClientBelievesNobodyWhoHasNotTheSecret) {
  auto impostor = TableServer::Start(kHost, "another");
  ASSERT_THAT(impostor, IsOk());
  EXPECT_THAT(TableClient::Connect({kHost, (*impostor)->port()}, kSecret, kSoon),
              Fails(absl::StatusCode::kUnavailable, "connecting to the rendezvous"));
}

TEST_F(TableServerTest, StrangersWhoStayAndSayNothingKeepNoRankOut) {
  const auto first = Rank();
  std::vector<FileDescriptor> strangers;
  for (size_t i = 0; i < 2 * kMostStrangers; ++i) strangers.push_back(Stranger());
  // The oldest had to go; ranks that are there stay.
  EXPECT_THAT(Receive(strangers.front().get(), 1, absl::Now() + kPatience),
              Fails(absl::StatusCode::kUnavailable, ""));
  EXPECT_THAT(Receive(strangers.back().get(), 1, absl::Now() + kSoon),
              Fails(absl::StatusCode::kUnavailable, "no answer within the time"));
  Set(*first, "key", "value");
  EXPECT_EQ(Get(*Rank(), "key"), "value");
}

TEST_F(TableServerTest, RanksMeetWhileStrangersComeAsFastAsTheyCan) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> strangers;
  for (int i = 0; i < 4; ++i) {
    strangers.emplace_back([&] {
      std::vector<FileDescriptor> held;
      while (!stop) {
        auto socket = ConnectTo(kHost, server_->port(), absl::Now() + kPatience);
        if (socket.ok()) held.push_back(*std::move(socket));
        if (held.size() > kMostStrangers) held.erase(held.begin());
      }
    });
  }
  for (int i = 0; i < 50; ++i) Set(*Rank(), std::to_string(i), "here");
  stop = true;
  for (std::thread& stranger : strangers) stranger.join();
  EXPECT_EQ(Ask(*Rank(), {.operation = TableOperation::kCount}).number, 50);
}

TEST_F(TableServerTest, CallsFailOnceTheTableIsGone) {
  const auto rank = Rank();
  server_.reset();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(rank->Call({.operation = TableOperation::kCount}, kPatience),
                Fails(absl::StatusCode::kUnavailable, ""));
  }
}

TEST_F(TableServerTest, AnEndDoesNotWaitForThoseWhoWait) {
  const auto rank = Rank();
  std::thread waiting([&] {
    EXPECT_FALSE(
        rank->Call({.operation = TableOperation::kWait, .keys = {"never"}, .number = 3'600'000}, kPatience)
            .ok());
  });
  server_.reset();
  waiting.join();
}

}  // namespace
}  // namespace penstock::worker
