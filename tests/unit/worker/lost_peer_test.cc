#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "absl/time/clock.h"
#include "common/process/child_process.h"
#include "tests/unit/worker/comm_testing.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPromptly = absl::Seconds(5);

void ExpectLost(const absl::Status& status, const std::string& rank) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(rank));
}

// A communicator of rank 0 whose peer, a process of its own, dies as soon as it is told to.
class LostPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    auto child = ChildProcess::Start({.arguments = {COMM_PEER, server_.address()}});
    ASSERT_TRUE(child.ok()) << child.status();
    child_ = *std::move(child);
    auto communicator = MakeGlooCommunicator(server_.Options(0, 2));
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    communicator_ = *std::move(communicator);
  }

  void EndPeer() {
    auto message = communicator_->Send(at::ones({1}), 1, 0);
    ASSERT_TRUE(message.ok()) << message.status();
    ASSERT_TRUE((*message)->Wait().ok());
  }

  CommTestServer server_;
  std::unique_ptr<ChildProcess> child_;
  std::unique_ptr<Communicator> communicator_;
};

TEST_F(LostPeer, EndsTransfersUnderWay) {
  auto receive = communicator_->Receive(at::zeros({1000}), 1, 0);
  auto send = communicator_->Send(at::zeros({10'000'000}), 1, 1);
  ASSERT_TRUE(receive.ok() && send.ok());
  EndPeer();
  const absl::Time start = absl::Now();
  ExpectLost((*receive)->Wait(), "receiving from rank 1");
  ExpectLost((*send)->Wait(), "sending to rank 1");
  EXPECT_LT(absl::Now() - start, kPromptly);
}

TEST_F(LostPeer, FailsTransfersThatComeLater) {
  EndPeer();
  ASSERT_TRUE(child_->WaitFor(absl::Seconds(20)).has_value());
  const absl::Time start = absl::Now();
  auto receive = communicator_->Receive(at::zeros({1000}), 1, 0);
  ExpectLost(receive.ok() ? (*receive)->Wait() : receive.status(), "receiving from rank 1");
  EXPECT_LT(absl::Now() - start, kPromptly);
}

TEST_F(LostPeer, EndsAnAllReduce) {
  EndPeer();
  const absl::Time start = absl::Now();
  std::vector<at::Tensor> tensors = {at::ones({1000})};
  ExpectLost(communicator_->AllReduceSum(tensors, {0, 1}), "rank 1");
  EXPECT_LT(absl::Now() - start, kPromptly);
}

TEST_F(LostPeer, EndsAReduceScatterOfManySegments) {
  EndPeer();
  const absl::Time start = absl::Now();
  std::vector<at::Tensor> tensors = {at::ones({10'000'000})};
  const auto reduction = communicator_->StartReduceScatterSum(tensors, {0, 1});
  ExpectLost(reduction.ok() ? (*reduction)->Wait() : reduction.status(), "rank 1");
  EXPECT_LT(absl::Now() - start, kPromptly);
}

TEST_F(LostPeer, EndsAnAllGatherOfManySegments) {
  EndPeer();
  const absl::Time start = absl::Now();
  std::vector<at::Tensor> tensors = {at::ones({10'000'000})};
  ExpectLost(communicator_->AllGather(tensors, {0, 1}), "rank 1");
  EXPECT_LT(absl::Now() - start, kPromptly);
}

TEST(SilentPeer, IsUnavailableWhenTheTimeIsOver) {
  const CommTestServer server;
  std::thread silent;
  std::unique_ptr<Communicator> peer;
  silent = std::thread([&] { peer = *MakeGlooCommunicator(server.Options(1, 2)); });
  CommunicatorOptions options = server.Options(0, 2);
  options.timeout = std::chrono::milliseconds(100);
  auto communicator = MakeGlooCommunicator(options);
  silent.join();
  ASSERT_TRUE(communicator.ok()) << communicator.status();
  auto receive = (*communicator)->Receive(at::zeros({1}), 1, 0);
  ExpectLost((*receive)->Wait(), "receiving from rank 1");
}

TEST(SilentPeer, ThatNeverJoinsIsUnavailable) {
  const CommTestServer server;
  CommunicatorOptions options = server.Options(0, 2);
  options.connect_timeout = kInVain;
  ExpectLost(MakeGlooCommunicator(options).status(), "joining the group of ranks 0, 1 as rank 0");
}

TEST(SilentPeer, OfAnotherEpochIsNotMet) {
  const CommTestServer server;
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      CommunicatorOptions options = server.Options(rank, 2);
      options.epoch = rank;
      options.connect_timeout = kInVain;
      statuses[rank] = MakeGlooCommunicator(options).status();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  ExpectLost(statuses[0], "rank 0");
  ExpectLost(statuses[1], "rank 1");
}

TEST(MissingStore, IsUnavailable) {
  CommunicatorOptions options;
  options.world_size = 2;
  options.groups = {{0, 1}};
  {
    const CommTestServer gone;
    options.rendezvous_address = gone.address();
  }
  options.connect_timeout = kInVain;
  ExpectLost(MakeGlooCommunicator(options).status(), options.rendezvous_address);
}

// Rank 0 aborts; rank 1 only stays until it has.
TEST(Abort, EndsWaitsInOtherThreadsAndAllLaterCalls) {
  std::barrier both(2);
  for (int round = 0; round < 5; ++round) {
    RunRanks(2, [&](uint32_t rank, Communicator& communicator) {
      if (rank == 0) {
        auto receive = communicator.Receive(at::zeros({1000}), 1, 7);
        auto send = communicator.Send(at::zeros({10'000'000}), 1, 8);
        std::thread aborter([&] { communicator.Abort("rank 5 was lost"); });
        for (auto* transfer : {&receive, &send}) {
          const absl::Status status = transfer->ok() ? (**transfer)->Wait() : transfer->status();
          EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
          EXPECT_THAT(std::string(status.message()), HasSubstr("rank 5 was lost"));
        }
        aborter.join();
        EXPECT_EQ(communicator.Receive(at::zeros({1}), 1, 9).status().code(), absl::StatusCode::kCancelled);
        std::vector<at::Tensor> tensors = {at::ones({1})};
        EXPECT_EQ(communicator.AllReduceSum(tensors, {0, 1}).code(), absl::StatusCode::kCancelled);
      }
      both.arrive_and_wait();
    });
  }
}

// Rank 1 stays, and never joins in.
TEST(Abort, EndsReductionsThatWereStarted) {
  std::barrier both(2);
  RunRanks(2, [&](uint32_t rank, Communicator& communicator) {
    if (rank == 0) {
      std::vector<std::unique_ptr<PendingTransfer>> reductions;
      for (int i = 0; i < 2; ++i) {
        reductions.push_back(*communicator.StartAllReduceSum({at::ones({10'000'000})}, {0, 1}));
      }
      communicator.Abort("no more");
      for (const auto& reduction : reductions) {
        EXPECT_EQ(reduction->Wait().code(), absl::StatusCode::kCancelled);
      }
    }
    both.arrive_and_wait();
  });
}

// It would wait for five minutes (CommunicatorOptions::timeout).
TEST(Abort, IsNotNeededToDestroyACommunicatorThatStillReduces) {
  std::barrier both(2);
  const absl::Time start = absl::Now();
  const CommTestServer server;
  std::unique_ptr<Communicator> peer;
  std::thread joining([&] { peer = *MakeGlooCommunicator(server.Options(1, 2)); });
  auto communicator = *MakeGlooCommunicator(server.Options(0, 2));
  joining.join();
  ASSERT_TRUE(communicator->StartAllReduceSum({at::ones({10'000'000})}, {0, 1}).ok());
  communicator.reset();
  EXPECT_LT(absl::Now() - start, kPromptly);
}

TEST(Abort, EndsAnAllReduceThatWaits) {
  std::barrier both(2);
  RunRanks(2, [&](uint32_t rank, Communicator& communicator) {
    if (rank == 0) {
      std::thread aborter([&] { communicator.Abort("no more"); });
      std::vector<at::Tensor> tensors = {at::ones({10'000'000})};
      EXPECT_EQ(communicator.AllReduceSum(tensors, {0, 1}).code(), absl::StatusCode::kCancelled);
      aborter.join();
    }
    both.arrive_and_wait();
  });
}

}  // namespace
}  // namespace penstock::worker
