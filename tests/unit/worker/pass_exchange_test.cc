#include "worker/comm/pass_exchange.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/worker/comm_testing.h"
#include "worker/comm/shard.h"
#include "worker/device/thread_clock.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What rank `rank` has, of small whole numbers: sums are exact.
at::Tensor Values(int rank, std::vector<int64_t> shape, at::ScalarType type = at::kDouble) {
  const int64_t count = c10::multiply_integers(shape);
  return at::arange(count, at::kDouble).remainder(7).add(rank).reshape(shape).to(type);
}

at::Tensor Rows(const at::Tensor& tensor, const GroupPlace& place) {
  const Shard shard = ShardOf(tensor.size(0), place.tensor, place.tensors);
  return tensor.narrow(0, shard.begin, shard.size());
}

TEST(PassExchangeTest, ARankAloneHasNoGroup) {
  RunTopology(TopologyOf(1, 2, 1, 1),
              [](uint32_t, Communicator& communicator) { EXPECT_EQ(communicator.stage_group(), nullptr); });
}

// Four ranks as tensor ranks, as two pairs of them, and alone: the pairs are joined once.
TEST(PassExchangeTest, HasAGroupForEveryStrategy) {
  const CommTestServer server;
  const std::vector<Topology> strategies = {TopologyOf(1, 1, 1, 4), TopologyOf(2, 1, 1, 2),
                                            TopologyOf(4, 1, 1, 1), TopologyOf(1, 2, 1, 2)};
  std::latch joined(4);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options = server.Options(rank, strategies[0]);
      for (size_t i = 1; i < strategies.size(); ++i)
        options.other_passes.push_back(server.Options(rank, strategies[i]).passes);
      const auto communicator = MakeGlooCommunicator(options);
      joined.arrive_and_wait();
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      const auto sum_of = [&](size_t strategy) {
        StageGroup& group = *(*communicator)->StageGroupOf(strategy);
        at::Tensor sum = at::full({3}, rank, at::kDouble);
        group.SumOverTensorRanks(sum);
        EXPECT_TRUE(group.status().ok()) << group.status();
        return sum[0].item<double>();
      };
      for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(sum_of(0), 6);
        EXPECT_EQ(sum_of(1), rank < 2 ? 1 : 5);
        EXPECT_EQ((*communicator)->StageGroupOf(2), nullptr);
        EXPECT_EQ(sum_of(3), rank < 2 ? 1 : 5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PassExchangeTest, GathersUnevenRowsOfTheTensorRanks) {
  for (const int64_t rows : {7, 3, 2, 0}) {
    RunTopology(TopologyOf(1, 1, 2, 3), [&](uint32_t rank, Communicator& communicator) {
      StageGroup& group = *communicator.stage_group();
      const at::Tensor all = Values(group.place().context, {rows, 4});
      const at::Tensor gathered = group.GatherRows(Rows(all, group.place()), rows);
      EXPECT_TRUE(group.status().ok()) << group.status();
      EXPECT_TRUE(at::equal(gathered, all)) << "rank " << rank << ", " << rows << " rows";
    });
  }
}

TEST(PassExchangeTest, SumsRowsOverTheTensorRanks) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const int64_t rows : {8, 5, 1}) {
      RunTopology(TopologyOf(1, 1, 1, 3), [&](uint32_t, Communicator& communicator) {
        StageGroup& group = *communicator.stage_group();
        const at::Tensor sum = group.SumRows(Values(group.place().tensor, {rows, 2, 3}, type), rows);
        const at::Tensor expected =
            Values(0, {rows, 2, 3}) + Values(1, {rows, 2, 3}) + Values(2, {rows, 2, 3});
        EXPECT_TRUE(at::equal(sum, Rows(expected, group.place()).to(type))) << rows << " rows of " << type;
      });
    }
  }
}

TEST(PassExchangeTest, SumsAreRoundedOnce) {
  RunTopology(TopologyOf(1, 1, 1, 4), [](uint32_t, Communicator& communicator) {
    StageGroup& group = *communicator.stage_group();
    // 256 + 1 is 256 in bfloat16, so that rounding after each addition gives 256.
    at::Tensor values = at::full({4}, group.place().tensor == 0 ? 256.0 : 1.0, at::kBFloat16);
    EXPECT_EQ(group.SumRows(values, values.size(0)).item<float>(), 260);
    group.SumOverTensorRanks(values);
    EXPECT_TRUE(at::equal(values, at::full({4}, 260.0, at::kBFloat16)));
  });
}

TEST(PassExchangeTest, SmallAndLargeTensorsAreMergedAlikeInPlace) {
  for (const int64_t count : {1, 3, 40'000}) {
    RunTopology(TopologyOf(1, 1, 2, 2), [&](uint32_t, Communicator& communicator) {
      StageGroup& group = *communicator.stage_group();
      const int first = 10 * group.place().context;
      at::Tensor sum = Values(first + group.place().tensor, {count, 1});
      group.SumOverTensorRanks(sum);
      EXPECT_TRUE(at::equal(sum, Values(first, {count, 1}) + Values(first + 1, {count, 1}))) << count;
      at::Tensor largest = Values(first, {count}).mul_(group.place().tensor == 0 ? 1 : -1);
      group.MaxOverTensorRanks(largest);
      EXPECT_TRUE(at::equal(largest, Values(first, {count}))) << count;
    });
  }
}

// Rank r of the context ranks sends r + 2 * peer rows to `peer`, of itself too.
TEST(PassExchangeTest, ContextRanksExchangeRowsOfUnevenNumbers) {
  RunTopology(TopologyOf(1, 1, 4, 2), [](uint32_t, Communicator& communicator) {
    StageGroup& group = *communicator.stage_group();
    const int own = group.place().context;
    std::vector<int64_t> sent;
    std::vector<int64_t> received;
    std::vector<at::Tensor> rows;
    std::vector<at::Tensor> expected;
    for (int peer = 0; peer < 4; ++peer) {
      sent.push_back(own + 2 * peer);
      received.push_back(peer + 2 * own);
      rows.push_back(at::full({sent.back(), 3}, 100 * group.place().tensor + 10 * own + peer, at::kFloat));
      expected.push_back(
          at::full({received.back(), 3}, 100 * group.place().tensor + 10 * peer + own, at::kFloat));
    }
    for (int again = 0; again < 3; ++again) {
      EXPECT_TRUE(at::equal(group.ExchangeRows(at::cat(rows), sent, received), at::cat(expected)));
    }
    EXPECT_TRUE(group.status().ok()) << group.status();
  });
}

// Rank 0 has nothing to send until rank 1 has done something else in its own exchange.
TEST(PassExchangeTest, SomethingElseIsDoneBeforeRowsOfExpertsAreWaitedFor) {
  Topology topology = TopologyOf(1, 1, 2, 1);
  topology.replicas.front().expert = 2;
  std::promise<void> done;
  std::future<void> is_done = done.get_future();
  RunTopology(topology, [&](uint32_t rank, Communicator& communicator) {
    StageGroup& group = *communicator.stage_group();
    if (rank == 0) {
      ASSERT_EQ(is_done.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    }
    const at::Tensor rows = at::full({2, 3}, static_cast<float>(rank));
    const std::unique_ptr<PendingRows> exchange = group.StartExpertRows(rows, {1, 1}, {1, 1});
    if (rank == 1) done.set_value();
    const at::Tensor come = exchange->Wait();
    EXPECT_TRUE(at::equal(come, at::cat({at::full({1, 3}, 0.0F), at::full({1, 3}, 1.0F)})));
    EXPECT_TRUE(group.status().ok()) << group.status();
  });
  EXPECT_EQ(is_done.wait_for(std::chrono::seconds(0)), std::future_status::ready);
}

// Two exchanges are under way at a time, with numbers of rows between them.
TEST(PassExchangeTest, RowsOfExpertsThatTravelTogetherArriveInTheirOrder) {
  Topology topology = TopologyOf(1, 1, 4, 1);
  topology.replicas.front().expert = 4;
  RunTopology(topology, [&](uint32_t rank, Communicator& communicator) {
    StageGroup& group = *communicator.stage_group();
    const auto own = static_cast<float>(rank);
    const std::vector<int64_t> ones = {1, 1, 1, 1};
    for (int again = 0; again < 3; ++again) {
      const auto first = group.StartExpertRows(at::full({4, 20'000}, own), ones, ones);
      const at::Tensor numbers = group.ExchangeExpertCounts(at::full({4}, int64_t{rank}, at::kLong));
      const auto second = group.StartExpertRows(at::full({4, 5}, 10 + own), ones, ones);
      const at::Tensor come_first = first->Wait();
      const at::Tensor come_second = second->Wait();
      EXPECT_TRUE(at::equal(numbers, at::arange(4)));
      for (int64_t from = 0; from < 4; ++from) {
        EXPECT_EQ(come_first[from].min().item<float>(), static_cast<float>(from));
        EXPECT_EQ(come_first[from].max().item<float>(), static_cast<float>(from));
        EXPECT_EQ(come_second[from].max().item<float>(), static_cast<float>(10 + from));
      }
    }
    EXPECT_TRUE(group.status().ok()) << group.status();
  });
}

TEST(PassExchangeTest, RowsUnderWayToAPeerThatGoesAreAnErrorAndZeros) {
  Topology topology = TopologyOf(1, 1, 2, 1);
  topology.replicas.front().expert = 2;
  RunTopology(topology, [&](uint32_t rank, Communicator& communicator) {
    if (rank == 1) return;
    StageGroup& group = *communicator.stage_group();
    const at::Tensor rows = at::ones({2, 100'000});
    const auto first = group.StartExpertRows(rows, {1, 1}, {1, 1});
    const auto second = group.StartExpertRows(rows, {1, 1}, {1, 1});
    {
      // Nobody asks for these.
      const auto third = group.StartExpertRows(rows, {1, 1}, {1, 1});
    }
    EXPECT_EQ(group.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(group.status().message()),
                AllOf(HasSubstr("ranks of other experts"), HasSubstr("rank 1")));
    EXPECT_TRUE(at::equal(first->Wait(), at::zeros({2, 100'000})));
    EXPECT_TRUE(at::equal(second->Wait(), at::zeros({2, 100'000})));
    EXPECT_TRUE(at::equal(group.StartExpertRows(rows, {1, 1}, {1, 2})->Wait(), at::zeros({3, 100'000})));
  });
}

TEST(PassExchangeTest, AnAbortEndsTheWaitForRowsUnderWay) {
  Topology topology = TopologyOf(1, 1, 2, 1);
  topology.replicas.front().expert = 2;
  std::latch waits(2);
  RunTopology(topology, [&](uint32_t rank, Communicator& communicator) {
    StageGroup& group = *communicator.stage_group();
    std::unique_ptr<PendingRows> rows;
    if (rank == 0) rows = group.StartExpertRows(at::ones({2, 3}), {1, 1}, {1, 1});
    waits.arrive_and_wait();
    if (rank == 1) return;
    std::thread other([&] { communicator.Abort("enough"); });
    EXPECT_TRUE(at::equal(rows->Wait(), at::zeros({2, 3})));
    EXPECT_EQ(group.status().code(), absl::StatusCode::kCancelled);
    other.join();
  });
}

TEST(PassExchangeTest, PassesDoNotWaitForReductionsThatOthersHaveNotStarted) {
  RunTopology(TopologyOf(1, 1, 2, 1), [](uint32_t rank, Communicator& communicator) {
    StageGroup& group = *communicator.stage_group();
    const at::Tensor gradients = at::ones({100'000});
    std::unique_ptr<PendingTransfer> reduction;
    const auto reduce = [&] { reduction = *communicator.StartAllReduceSum({gradients}, {0, 1}); };
    if (rank == 0) reduce();
    const at::Tensor heard = group.ExchangeRows(at::full({2, 1}, rank), {1, 1}, {1, 1});
    EXPECT_EQ(heard.sum().item<float>(), 1);
    if (rank == 1) reduce();
    EXPECT_TRUE(reduction->Wait().ok());
    EXPECT_EQ(gradients.sum().item<float>(), 200'000);
  });
}

// As long as this thread has a core.
void Compute(int64_t ns) {
  const int64_t end = ThreadCoreNs() + ns;
  while (ThreadCoreNs() < end) {
  }
}

int64_t NsBetween(std::chrono::steady_clock::time_point start, std::chrono::steady_clock::time_point end) {
  return std::chrono::nanoseconds(end - start).count();
}

// Rank 1 computes 20 ms longer than rank 0 before each exchange: rank 0 waits so long, and says so; what it
// computes itself is none of that.
TEST(PassExchangeTest, WhoIsDoneFirstSaysHowLongItWaitedForTheOther) {
  constexpr int64_t kLateNs = 20'000'000;
  constexpr int64_t kOwnNs = 5'000'000;
  const auto gather = [](StageGroup& group) { group.GatherRows(at::ones({1, 2}), 2); };
  const auto sum = [](StageGroup& group) {
    at::Tensor values = at::ones({3});
    group.SumOverTensorRanks(values);
  };
  for (const auto& exchange :
       {std::function<void(StageGroup&)>(gather), std::function<void(StageGroup&)>(sum)}) {
    std::latch together(2);
    std::chrono::steady_clock::time_point begun[2];
    int64_t took[2], waited[2];
    RunTopology(TopologyOf(1, 1, 1, 2), [&](uint32_t rank, Communicator& communicator) {
      StageGroup& group = *communicator.stage_group();
      exchange(group);
      group.TakeWaitedNs();
      together.arrive_and_wait();
      Compute(kOwnNs + (rank == 1 ? kLateNs : 0));
      begun[rank] = std::chrono::steady_clock::now();
      exchange(group);
      took[rank] = NsBetween(begun[rank], std::chrono::steady_clock::now());
      waited[rank] = group.TakeWaitedNs();
      EXPECT_EQ(group.TakeWaitedNs(), 0) << "it was said";
      EXPECT_TRUE(group.status().ok()) << group.status();
    });
    for (int rank = 0; rank < 2; ++rank) EXPECT_LE(waited[rank], took[rank]);
    // Half: the thread may lose its core just before it waits.
    EXPECT_GE(waited[0], NsBetween(begun[0], begun[1]) / 2);
  }
}

TEST(PassExchangeTest, RowsThatTravelWhileARankComputesAreNotWaitedFor) {
  std::latch begun(2);
  RunTopology(TopologyOf(1, 1, 2, 1), [&](uint32_t rank, Communicator& communicator) {
    StageGroup& group = *communicator.stage_group();
    group.ExchangeRows(at::full({2, 1}, rank), {1, 1}, {1, 1});
    const auto rows = group.StartRows(at::full({2, 1}, rank), {1, 1}, {1, 1});
    begun.arrive_and_wait();
    group.TakeWaitedNs();
    const auto start = std::chrono::steady_clock::now();
    Compute(20'000'000);
    const auto asked = std::chrono::steady_clock::now();
    EXPECT_EQ(group.TakeWaitedNs(), 0);
    EXPECT_EQ(rows->Wait().sum().item<float>(), 1);
    EXPECT_LE(group.TakeWaitedNs(), NsBetween(asked, std::chrono::steady_clock::now()));
    EXPECT_GE(NsBetween(start, asked), 20'000'000);
  });
}

TEST(PassExchangeTest, AfterAnErrorCallsReturnZerosAtOnce) {
  RunTopology(TopologyOf(1, 1, 1, 2), [](uint32_t rank, Communicator& communicator) {
    StageGroup& group = *communicator.stage_group();
    // The other rank waits for what never comes, until this one goes away.
    if (rank == 1) return;
    const at::Tensor gathered = group.GatherRows(at::ones({1, 2}), 2);
    EXPECT_TRUE(at::equal(gathered, at::zeros({2, 2})));
    EXPECT_EQ(group.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(group.status().message()), AllOf(HasSubstr("tensor ranks"), HasSubstr("rank 1")));
    const absl::Status first = group.status();
    EXPECT_EQ(group.SumRows(at::ones({5, 2}), 5).sizes(), at::IntArrayRef({2, 2}));
    at::Tensor values = at::ones({3});
    group.SumOverTensorRanks(values);
    EXPECT_TRUE(at::equal(values, at::zeros({3})));
    EXPECT_EQ(group.status(), first);
  });
}

TEST(PassExchangeTest, AnAbortEndsAPass) {
  RunTopology(TopologyOf(1, 1, 2, 1), [](uint32_t rank, Communicator& communicator) {
    StageGroup& group = *communicator.stage_group();
    communicator.Abort("enough");
    EXPECT_EQ(group.ExchangeRows(at::ones({2, 1}), {1, 1}, {1, 2}).size(0), 3) << rank;
    EXPECT_EQ(group.status().code(), absl::StatusCode::kCancelled);
    EXPECT_THAT(std::string(group.status().message()), HasSubstr("enough"));
  });
}

TEST(PassExchangeTest, RowsThatDoNotFitAreAnError) {
  RunTopology(TopologyOf(1, 1, 1, 2), [](uint32_t, Communicator& communicator) {
    StageGroup& group = *communicator.stage_group();
    EXPECT_EQ(group.GatherRows(at::ones({2, 2}), 2).size(0), 2);
    EXPECT_THAT(std::string(group.status().message()), HasSubstr("own part has 2 rows, expected 1"));
  });
}

TEST(PassExchangeTest, ATensorWithoutElementsIsNotSent) {
  RunTopology(TopologyOf(1, 2, 1, 1), [](uint32_t rank, Communicator& communicator) {
    if (rank == 1) return;
    const auto sent = communicator.Send(at::empty({0, 4}), 1, 0);
    ASSERT_TRUE(sent.ok()) << sent.status();
    EXPECT_TRUE((*sent)->Wait().ok());
    const auto received = communicator.Receive(at::empty({0, 4}), 1, 0);
    ASSERT_TRUE(received.ok()) << received.status();
    EXPECT_TRUE((*received)->Wait().ok());
  });
}

}  // namespace
}  // namespace penstock::worker
