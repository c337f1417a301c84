// NCCL between two GPUs of one machine.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/gpu/gpu_testing.h"
#include "tests/unit/worker/gpu/nccl_ranks.h"
#include "worker/comm/communicator.h"
#include "worker/comm/shard.h"

namespace penstock::worker {
namespace {

class NcclPair : public testing::Test {
 protected:
  void SetUp() override { PENSTOCK_NEEDS_GPUS(2); }
};

using Started = absl::StatusOr<std::unique_ptr<PendingTransfer>>;

void Await(Started transfer) {
  ASSERT_TRUE(transfer.ok()) << transfer.status();
  const absl::Status ended = (*transfer)->Wait();
  EXPECT_TRUE(ended.ok()) << ended;
}

at::Tensor Filled(uint32_t rank, int64_t count, double value) {
  return at::full({count}, value, at::TensorOptions(Gpu(static_cast<int>(rank))).dtype(at::kFloat));
}

// What the rank sends, and the other expects.
double ValueOf(uint32_t rank, uint32_t sequence) { return 10.0 * (rank + 1) + sequence; }

TEST_F(NcclPair, ActivationsAndGradientsPassEachOther) {
  RunTwoRanks([](uint32_t rank, Communicator& communicator) {
    const uint32_t peer = 1 - rank;
    for (uint32_t sequence = 0; sequence < 8; ++sequence) {
      const at::Tensor received = Filled(rank, 100'003, 0);
      const at::Tensor sent = Filled(rank, 100'003, ValueOf(rank, sequence));
      Started receive = communicator.Receive(received, peer, sequence);
      Started send = communicator.Send(sent, peer, sequence);
      Await(std::move(receive));
      Await(std::move(send));
      EXPECT_TRUE(received.cpu().eq(ValueOf(peer, sequence)).all().item<bool>());
    }
  });
}

TEST_F(NcclPair, MessagesOfADirectionArriveInTheirOrder) {
  RunTwoRanks([](uint32_t rank, Communicator& communicator) {
    std::vector<at::Tensor> tensors;
    std::vector<Started> transfers;
    for (uint32_t sequence = 0; sequence < 4; ++sequence) {
      tensors.push_back(Filled(rank, 1000, rank == 0 ? 1.0 * sequence : -1.0));
      transfers.push_back(rank == 0 ? communicator.Send(tensors.back(), 1, sequence)
                                    : communicator.Receive(tensors.back(), 0, sequence));
    }
    for (Started& transfer : transfers) Await(std::move(transfer));
    for (uint32_t sequence = 0; sequence < 4; ++sequence)
      EXPECT_EQ(tensors[sequence].mean().item<double>(), sequence);
  });
}

TEST_F(NcclPair, AnAllReduceIsTheSum) {
  RunTwoRanks([](uint32_t rank, Communicator& communicator) {
    std::vector<at::Tensor> tensors = {Filled(rank, 7, rank + 1), Filled(rank, 2'000'001, 10.0 * (rank + 1))};
    ASSERT_TRUE(communicator.AllReduceSum(tensors, {0, 1}).ok());
    EXPECT_TRUE(tensors[0].cpu().eq(3).all().item<bool>());
    EXPECT_TRUE(tensors[1].cpu().eq(30).all().item<bool>());
  });
}

// The first ones send something each, then one of them nothing.
TEST_F(NcclPair, AllRanksExchangeAtOnce) {
  RunTwoRanks([](uint32_t rank, Communicator& communicator) {
    const uint32_t peer = 1 - rank;
    for (const int64_t from_first : {100'003, 0}) {
      const int64_t counts[] = {from_first, 7};
      std::vector<at::Tensor> sent(2, Filled(rank, 3, -1));
      std::vector<at::Tensor> received = sent;
      sent[peer] = Filled(rank, counts[rank], rank + 1);
      received[peer] = Filled(rank, counts[peer], 0);
      Await(communicator.StartAllToAll(sent, received, {0, 1}));
      EXPECT_TRUE(received[peer].cpu().eq(peer + 1).all().item<bool>());
      EXPECT_TRUE(received[rank].cpu().eq(-1).all().item<bool>());
    }
  });
}

TEST_F(NcclPair, SizesThatDoNotDivideAreScatteredAndGathered) {
  RunTwoRanks([](uint32_t rank, Communicator& communicator) {
    for (const int64_t elements : {1, 2, 7, 100'001}) {
      const at::Tensor tensor = Filled(rank, elements, rank + 1);
      Await(communicator.StartReduceScatterSum({tensor}, {0, 1}));
      const Shard own = ShardOf(elements, static_cast<int>(rank), 2);
      EXPECT_TRUE(tensor.narrow(0, own.begin, own.size()).cpu().eq(3).all().item<bool>()) << elements;
      ASSERT_TRUE(communicator.AllGather({tensor}, {0, 1}).ok());
      EXPECT_TRUE(tensor.cpu().eq(3).all().item<bool>()) << elements;
    }
  });
}

TEST_F(NcclPair, TensorRanksGatherAndSumInTheirPasses) {
  RunTwoRanks(
      [](uint32_t rank, Communicator& communicator) {
        StageGroup& group = *communicator.stage_group();
        const at::Tensor gathered = group.GatherRows(Filled(rank, rank + 1, rank), 3);
        EXPECT_TRUE(gathered.cpu().equal(at::tensor({0.0F, 1.0F, 1.0F})));
        const at::Tensor sum = group.SumRows(Filled(rank, 100'001, rank + 1).to(at::kBFloat16), 100'001);
        EXPECT_EQ(sum.numel(), 50'000 + rank);
        EXPECT_TRUE(sum.cpu().eq(3).all().item<bool>());
        for (const int64_t elements : {5, 100'001}) {
          at::Tensor values = Filled(rank, elements, rank + 1);
          group.SumOverTensorRanks(values);
          EXPECT_TRUE(values.cpu().eq(3).all().item<bool>());
          values.mul_(rank + 1);
          group.MaxOverTensorRanks(values);
          EXPECT_TRUE(values.cpu().eq(6).all().item<bool>());
        }
        EXPECT_TRUE(group.status().ok()) << group.status();
      },
      Divided::kLayers);
}

// Rank 0 keeps a row and sends two, rank 1 sends none.
TEST_F(NcclPair, ContextRanksExchangeRowsInTheirPasses) {
  RunTwoRanks([](uint32_t rank, Communicator& communicator) {
    StageGroup& group = *communicator.stage_group();
    const at::Tensor rows = Filled(rank, rank == 0 ? 3 : 1, rank + 1);
    const at::Tensor received =
        rank == 0 ? group.ExchangeRows(rows, {1, 2}, {1, 0}) : group.ExchangeRows(rows, {0, 1}, {2, 1});
    EXPECT_TRUE(received.cpu().equal(rank == 0 ? at::tensor({1.0F}) : at::tensor({1.0F, 1.0F, 2.0F})));
    EXPECT_TRUE(group.status().ok()) << group.status();
  });
}

// Rank 0 never sends what rank 1 receives; its silence is all that rank 1 sees.
TEST_F(NcclPair, AnAbortEndsAReceiveThatWaits) {
  constexpr std::chrono::seconds kSeconds(20);
  std::promise<Communicator*> receiving;
  std::promise<void> ended;
  RunTwoRanks([&](uint32_t rank, Communicator& communicator) {
    const at::Tensor tensor = Filled(rank, 1000, rank);
    // NCCL connects two ranks at their first transfer.
    Await(rank == 0 ? communicator.Send(tensor, 1, 0) : communicator.Receive(tensor, 0, 0));
    WaitForGpu(static_cast<int>(rank));
    if (rank == 0) {
      receiving.get_future().get()->Abort("the test says so");
      EXPECT_EQ(ended.get_future().wait_for(kSeconds), std::future_status::ready);
      return;
    }
    Started receive = communicator.Receive(tensor, 0, 1);
    EXPECT_TRUE(receive.ok()) << receive.status();
    receiving.set_value(&communicator);
    const absl::Status status = receive.ok() ? (*receive)->Wait() : receive.status();
    WaitForGpu(1);
    ended.set_value();
    // Whoever waited before the abort has had its stream wait, and no more.
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    EXPECT_EQ(communicator.Receive(tensor, 0, 2).status().code(), absl::StatusCode::kCancelled);
  });
}

}  // namespace
}  // namespace penstock::worker
