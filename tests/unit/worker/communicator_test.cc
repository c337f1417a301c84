#include "worker/comm/communicator.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/process/file_descriptor.h"
#include "tests/unit/worker/comm_testing.h"
#include "worker/comm/direct_sum.h"
#include "worker/comm/groups.h"
#include "worker/comm/shard.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<PendingTransfer> Started(absl::StatusOr<std::unique_ptr<PendingTransfer>> transfer) {
  EXPECT_TRUE(transfer.ok()) << transfer.status();
  return *std::move(transfer);
}

at::Tensor Message(at::ScalarType type, int64_t sequence, int64_t elements) {
  return (at::arange(elements) % 97 + sequence).to(type);
}

TEST(Communicator, DeliversEachMessageToItsReceive) {
  constexpr int kMessages = 6;
  const std::vector<at::ScalarType> types = {at::kFloat, at::kDouble, at::kBFloat16};
  RunRanks(2, [&](uint32_t rank, Communicator& communicator) {
    std::vector<at::Tensor> received;
    std::vector<std::unique_ptr<PendingTransfer>> transfers;
    for (int i = 0; i < kMessages; ++i) {
      const at::ScalarType type = types[static_cast<size_t>(i) % types.size()];
      const int64_t elements = i % 2 == 0 ? 3 : 200'000;
      const auto sequence = static_cast<uint32_t>(i);
      received.push_back(at::zeros({elements}, type));
      transfers.push_back(
          Started(communicator.Send(Message(type, i + 10 * rank, elements), 1 - rank, sequence)));
      transfers.push_back(Started(communicator.Receive(received.back(), 1 - rank, sequence)));
    }
    for (const auto& transfer : transfers) EXPECT_TRUE(transfer->Wait().ok());
    for (int i = 0; i < kMessages; ++i) {
      const at::Tensor& tensor = received[static_cast<size_t>(i)];
      EXPECT_TRUE(tensor.equal(Message(tensor.scalar_type(), i + 10 * (1 - rank), tensor.numel()))) << i;
    }
  });
}

TEST(Communicator, SequenceNumbersMayComeAgain) {
  RunRanks(2, [](uint32_t rank, Communicator& communicator) {
    for (int iteration = 0; iteration < 20; ++iteration) {
      const at::Tensor tensor = at::full({5}, rank == 0 ? iteration : -1, at::kFloat);
      auto transfer = rank == 0 ? communicator.Send(tensor, 1, 0) : communicator.Receive(tensor, 0, 0);
      ASSERT_TRUE(Started(std::move(transfer))->Wait().ok());
      EXPECT_TRUE(tensor.equal(at::full({5}, iteration, at::kFloat)));
    }
  });
}

// What rank r contributes; thirds make sums depend on their order.
std::vector<at::Tensor> Gradients(uint32_t rank, at::ScalarType type) {
  std::vector<at::Tensor> tensors;
  for (const int64_t elements : {1, 7, 1000, 2}) {
    tensors.push_back(((at::arange(elements, at::kDouble) + 1) / (3 * rank + 3)).to(type).view({1, -1}));
  }
  return tensors;
}

class AllReduce : public ::testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, AllReduce, ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& info) { return c10::toString(info.param); });

TEST_P(AllReduce, GivesAllRanksTheSameBitsEachTime) {
  constexpr uint32_t kRanks = 3;
  std::vector<std::vector<at::Tensor>> results(kRanks * 2);
  for (uint32_t run = 0; run < 2; ++run) {
    RunRanks(kRanks, [&](uint32_t rank, Communicator& communicator) {
      std::vector<at::Tensor> tensors = Gradients(rank, GetParam());
      ASSERT_TRUE(communicator.AllReduceSum(tensors, {0, 1, 2}).ok());
      results[run * kRanks + rank] = tensors;
    });
  }
  const double tolerance = GetParam() == at::kBFloat16 ? 2e-2 : 1e-6;
  for (size_t i = 0; i < results[0].size(); ++i) {
    const at::Tensor sum = at::arange(1, results[0][i].numel() + 1, at::kDouble) * (11.0 / 18);
    EXPECT_TRUE(at::allclose(results[0][i].to(at::kDouble).flatten(), sum, tolerance));
    for (const auto& result : results) EXPECT_TRUE(result[i].equal(results[0][i]));
  }
}

// As Gradients, flat: less than one element a rank, what is left over, and several segments of each shard.
std::vector<at::Tensor> FlatGradients(uint32_t rank, at::ScalarType type) {
  std::vector<at::Tensor> tensors;
  for (const int64_t elements : {0, 2, 1000, 3'500'000}) {
    tensors.push_back(((at::arange(elements, at::kDouble) % 1013 + 1) / (3 * rank + 3)).to(type));
  }
  return tensors;
}

TEST_P(AllReduce, IsAReduceScatterAndAnAllGather) {
  constexpr int kRanks = 3;
  RunRanks(kRanks, [&](uint32_t rank, Communicator& communicator) {
    std::vector<at::Tensor> tensors = FlatGradients(rank, GetParam());
    std::vector<at::Tensor> expected;
    for (const at::Tensor& tensor : FlatGradients(rank, GetParam())) {
      std::vector<at::Tensor> alone = {tensor};
      ASSERT_TRUE(communicator.AllReduceSum(alone, {0, 1, 2}).ok());
      expected.push_back(tensor);
    }
    ASSERT_TRUE(Started(communicator.StartReduceScatterSum(tensors, {0, 1, 2}))->Wait().ok());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Shard own = ShardOf(tensors[i].numel(), static_cast<int>(rank), kRanks);
      const auto part = [&](const at::Tensor& whole) { return whole.narrow(0, own.begin, own.size()); };
      EXPECT_TRUE(part(tensors[i]).equal(part(expected[i]))) << tensors[i].numel() << " elements";
      // What others have must come from them.
      const at::Tensor sum = part(tensors[i]).clone();
      tensors[i].fill_(-1);
      part(tensors[i]).copy_(sum);
    }
    ASSERT_TRUE(communicator.AllGather(tensors, {0, 1, 2}).ok());
    for (size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(tensors[i].equal(expected[i]));
  });
}

// The same numbers small, where every rank sends to every other one, and as the begin of a tensor that goes
// round the ring: sums of a place are made in one order.
TEST_P(AllReduce, SmallTensorsHaveTheBitsOfARing) {
  constexpr uint32_t kRanks = 3;
  constexpr int64_t kElements = 999;
  RunRanks(kRanks, [&](uint32_t rank, Communicator& communicator) {
    const at::Tensor small = ((at::arange(kElements, at::kDouble) + 1) / (3 * rank + 3)).to(GetParam());
    ASSERT_TRUE(SumsDirectly(small, kRanks));
    // Three shards, each of which begins with the same third of the small tensor.
    const at::Tensor large = at::zeros({kElements * 100}, small.options());
    for (int64_t shard = 0; shard < kRanks; ++shard) {
      large.narrow(0, shard * kElements * 100 / kRanks, kElements / kRanks)
          .copy_(small.narrow(0, shard * kElements / kRanks, kElements / kRanks));
    }
    ASSERT_FALSE(SumsDirectly(large, kRanks));
    std::vector<at::Tensor> directly = {small};
    std::vector<at::Tensor> round = {large};
    ASSERT_TRUE(communicator.AllReduceSum(directly, {0, 1, 2}).ok());
    ASSERT_TRUE(communicator.AllReduceSum(round, {0, 1, 2}).ok());
    for (int64_t shard = 0; shard < kRanks; ++shard) {
      EXPECT_TRUE(large.narrow(0, shard * kElements * 100 / kRanks, kElements / kRanks)
                      .equal(small.narrow(0, shard * kElements / kRanks, kElements / kRanks)));
    }
  });
}

// Rank 1 joins in only when rank 0, who has started, tells it to.
TEST(Communicator, AReductionRunsBesideTransfersOfTheSameRanks) {
  RunRanks(2, [](uint32_t rank, Communicator& communicator) {
    const at::Tensor word = at::full({1}, rank == 0 ? 7 : 0, at::kFloat);
    const auto start = [&](int64_t elements) {
      return Started(communicator.StartAllReduceSum({at::full({elements}, rank + 1, at::kFloat)}, {0, 1}));
    };
    std::vector<std::unique_ptr<PendingTransfer>> reductions;
    if (rank == 0) reductions.push_back(start(500'000));
    const auto transfer =
        Started(rank == 0 ? communicator.Send(word, 1, 0) : communicator.Receive(word, 0, 0));
    ASSERT_TRUE(transfer->Wait().ok());
    EXPECT_EQ(word.item<float>(), 7);
    if (rank == 1) reductions.push_back(start(500'000));
    // Of another size: in which order they run must not depend on the rank.
    reductions.push_back(start(3));
    for (const auto& reduction : reductions) {
      EXPECT_TRUE(reduction->Wait().ok());
      ASSERT_TRUE(reduction->span().has_value());
      EXPECT_LT(reduction->span()->start, reduction->span()->end);
    }
    EXPECT_LE(reductions[0]->span()->end, reductions[1]->span()->start);
  });
}

TEST_P(AllReduce, HasTheSameBitsWhetherItBlocksOrIsStarted) {
  RunRanks(3, [&](uint32_t rank, Communicator& communicator) {
    for (const at::Tensor& tensor : FlatGradients(rank, GetParam())) {
      const at::Tensor started = tensor.clone();
      std::vector<at::Tensor> blocking = {tensor};
      ASSERT_TRUE(communicator.AllReduceSum(blocking, {0, 1, 2}).ok());
      ASSERT_TRUE(Started(communicator.StartAllReduceSum({started}, {0, 1, 2}))->Wait().ok());
      EXPECT_TRUE(started.equal(tensor));
    }
  });
}

TEST(Communicator, ReducesOverEachGroupOfAMesh) {
  // Two pipelines of two stages, and the two groups that reduce gradients.
  RunRanks(4, {{0, 1}, {2, 3}, {0, 2}, {1, 3}}, [](uint32_t rank, Communicator& communicator) {
    const uint32_t stage = rank % 2;
    std::vector<at::Tensor> gradient = {at::full({3}, 1 + rank, at::kFloat)};
    ASSERT_TRUE(communicator.AllReduceSum(gradient, {stage, stage + 2}).ok());
    EXPECT_TRUE(gradient[0].equal(at::full({3}, 4 + 2 * stage, at::kFloat)));
    std::vector<at::Tensor> norm = {at::full({}, 1 + rank, at::kDouble)};
    ASSERT_TRUE(communicator.AllReduceSum(norm, {rank - stage, rank - stage + 1}).ok());
    EXPECT_EQ(norm[0].item<double>(), rank < 2 ? 3 : 7);
    const at::Tensor activation = at::full({2}, stage == 0 ? rank : 99, at::kFloat);
    auto transfer = stage == 0 ? communicator.Send(activation, rank + 1, 0)
                               : communicator.Receive(activation, rank - 1, 0);
    ASSERT_TRUE(Started(std::move(transfer))->Wait().ok());
    EXPECT_EQ(activation[0].item<float>(), static_cast<float>(rank - stage));
  });
}

// How many elements `from` sends to `to`: none, few, and many.
int64_t ElementsBetween(uint32_t from, uint32_t to) {
  constexpr int64_t kElements[] = {0, 3, 300'000};
  return from == to ? 0 : kElements[(from + 2 * to) % 3];
}

at::Tensor FromTo(uint32_t from, uint32_t to, at::ScalarType type) {
  return Message(type, 10 * from + to, ElementsBetween(from, to));
}

TEST_P(AllReduce, ExchangesBesideItWithAllRanksAtOnce) {
  constexpr uint32_t kRanks = 4;
  RunRanks(kRanks, [&](uint32_t rank, Communicator& communicator) {
    const std::vector<uint32_t> world = {0, 1, 2, 3};
    for (int round = 0; round < 2; ++round) {
      std::vector<at::Tensor> sent;
      std::vector<at::Tensor> received;
      for (uint32_t peer = 0; peer < kRanks; ++peer) {
        sent.push_back(FromTo(rank, peer, GetParam()));
        received.push_back(at::full({ElementsBetween(peer, rank)}, -1, GetParam()));
      }
      // A rank's own are left alone, whatever they are.
      sent[rank] = received[rank] = at::ones({7}, GetParam());
      const auto reduction = Started(communicator.StartAllReduceSum({at::ones({100})}, world));
      const auto exchange = Started(communicator.StartAllToAll(sent, received, world));
      ASSERT_TRUE(reduction->Wait().ok());
      ASSERT_TRUE(exchange->Wait().ok());
      for (uint32_t peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        EXPECT_TRUE(received[peer].equal(FromTo(peer, rank, GetParam()))) << peer << " to " << rank;
      }
      EXPECT_TRUE(received[rank].equal(at::ones({7}, GetParam())));
    }
  });
}

TEST(Communicator, AnExchangeOfAllRanksIsOverTheGroupThatIsNamed) {
  RunRanks(4, {{0, 1, 2, 3}, {0, 2}, {1, 3}}, [](uint32_t rank, Communicator& communicator) {
    const std::vector<uint32_t> group = {rank % 2, rank % 2 + 2};
    const at::Tensor received = at::zeros({2});
    const std::vector<at::Tensor> sent(2, at::full({2}, rank, at::kFloat));
    ASSERT_TRUE(Started(communicator.StartAllToAll(sent, {received, received}, group))->Wait().ok());
    EXPECT_TRUE(received.equal(at::full({2}, (rank + 2) % 4, at::kFloat)));
  });
}

TEST(Communicator, AnExchangeThatIsAbortedEnds) {
  RunRanks(2, [](uint32_t rank, Communicator& communicator) {
    // Rank 1 never comes.
    if (rank == 1) return;
    const std::vector<at::Tensor> tensors(2, at::ones({4}));
    const auto exchange =
        Started(communicator.StartAllToAll(tensors, {at::ones({4}), at::ones({4})}, {0, 1}));
    communicator.Abort("the test");
    EXPECT_EQ(exchange->Wait().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(communicator.StartAllToAll(tensors, tensors, {0, 1}).status().code(),
              absl::StatusCode::kCancelled);
  });
}

TEST(Communicator, ReducesWithItselfWithoutAnyNetwork) {
  CommunicatorOptions options;
  options.groups = {{0}};
  auto communicator = MakeGlooCommunicator(options);
  ASSERT_TRUE(communicator.ok()) << communicator.status();
  std::vector<at::Tensor> tensors = {at::ones({4})};
  EXPECT_TRUE((*communicator)->AllReduceSum(tensors, {0}).ok());
  EXPECT_TRUE(Started((*communicator)->StartAllReduceSum(tensors, {0}))->Wait().ok());
  EXPECT_TRUE(Started((*communicator)->StartReduceScatterSum(tensors, {0}))->Wait().ok());
  EXPECT_TRUE((*communicator)->AllGather(tensors, {0}).ok());
  EXPECT_TRUE(Started((*communicator)->StartAllToAll(tensors, tensors, {0}))->Wait().ok());
  EXPECT_TRUE(tensors[0].equal(at::ones({4})));
}

TEST(Communicator, JoinsGroupsOfOneWhereThatIsAskedFor) {
  CommunicatorOptions options;
  options.world_size = 2;
  options.groups = {{0}, {0, 1}};
  EXPECT_THAT(*GroupsToJoin(options), testing::ElementsAre(RankGroup{0, 1}));
  options.join_groups_of_one = true;
  EXPECT_THAT(*GroupsToJoin(options), testing::ElementsAre(RankGroup{0}, RankGroup{0, 1}));
}

TEST(Communicator, RejectsPeersAndGroupsThatItDoesNotKnow) {
  RunRanks(2, [](uint32_t, Communicator& communicator) {
    const auto transfer = communicator.Send(at::ones({1}), 2, 0);
    EXPECT_EQ(transfer.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(transfer.status().message()), HasSubstr("rank 2"));
    std::vector<at::Tensor> tensors = {at::ones({1})};
    EXPECT_EQ(communicator.AllReduceSum(tensors, {0, 2}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(communicator.StartAllReduceSum(tensors, {0, 2}).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(communicator.StartReduceScatterSum(tensors, {0, 2}).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(communicator.AllGather(tensors, {0, 2}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(communicator.StartAllToAll({tensors[0], tensors[0]}, {tensors[0], tensors[0]}, {0, 2})
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
    const auto too_few = communicator.StartAllToAll({tensors[0], tensors[0]}, tensors, {0, 1});
    EXPECT_EQ(too_few.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(too_few.status().message()), HasSubstr("1 tensors for 2 ranks"));
    std::vector<at::Tensor> matrix = {at::ones({2, 2})};
    EXPECT_EQ(communicator.StartReduceScatterSum(matrix, {0, 1}).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(communicator.AllGather(matrix, {0, 1}).code(), absl::StatusCode::kInvalidArgument);
    const auto strided = communicator.Receive(at::ones({4, 4}).t(), 0, 0);
    EXPECT_EQ(strided.status().code(), absl::StatusCode::kInvalidArgument);
  });
}

TEST(Communicator, NamesTheGroupThatIsWrong) {
  CommunicatorOptions options;
  options.world_size = 2;
  for (const auto& [group, problem] : std::vector<std::pair<std::vector<uint32_t>, std::string>>{
           {{1}, "lacks this rank"}, {{0, 2}, "world_size is 2"}, {{0, 0}, "twice"}, {{}, "empty"}}) {
    options.groups = {{0}, group};
    const auto communicator = MakeGlooCommunicator(options);
    EXPECT_EQ(communicator.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(communicator.status().message()), HasSubstr("groups[1]"));
    EXPECT_THAT(std::string(communicator.status().message()), HasSubstr(problem));
  }
}

// Whether somebody listens there.
bool Answers(const std::string& address, uint16_t port) {
  const FileDescriptor descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in there = {};
  there.sin_family = AF_INET;
  there.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, address.c_str(), &there.sin_addr), 1);
  return connect(descriptor.get(), reinterpret_cast<const sockaddr*>(&there), sizeof(there)) == 0;
}

TEST(StoreServer, ListensOnItsHostAlone) {
  const auto server = StoreServer::Start("127.0.0.2");
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(Answers("127.0.0.2", (*server)->port()));
  EXPECT_FALSE(Answers("127.0.0.1", (*server)->port()));
  const auto elsewhere = StoreServer::Start("203.0.113.1");
  EXPECT_EQ(elsewhere.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(elsewhere.status().message()), HasSubstr("--host '203.0.113.1'"));
}

TEST(Communicator, RejectsAnAddressWithoutAPort) {
  CommunicatorOptions options;
  options.world_size = 2;
  options.groups = {{0, 1}};
  for (const std::string address : {"", "localhost", "localhost:", ":80", "localhost:0", "localhost:70000"}) {
    options.rendezvous_address = address;
    EXPECT_EQ(MakeGlooCommunicator(options).status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

}  // namespace
}  // namespace penstock::worker
