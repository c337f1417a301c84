// How fast two GPUs exchange tensors: figures for docs/results/gpu.md (tests/gpu/run), which no test judges.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tests/unit/worker/gpu/gpu_testing.h"
#include "tests/unit/worker/gpu/nccl_ranks.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {
namespace {

using Clock = std::chrono::steady_clock;
using Exchange =
    std::function<absl::Status(uint32_t rank, Communicator& communicator, const at::Tensor& tensor)>;

constexpr int64_t kLarge = int64_t{64} << 20;
constexpr int64_t kSmall = 4096;
constexpr int kRepeats = 20;

// Mean seconds of an exchange of so many bytes, after two that connect and warm up.
double SecondsOf(const Exchange& exchange, int64_t bytes) {
  double seconds = 0;
  RunTwoRanks([&](uint32_t rank, Communicator& communicator) {
    const int gpu = static_cast<int>(rank);
    const at::Tensor tensor = at::zeros({bytes}, at::TensorOptions(Gpu(gpu)).dtype(at::kByte));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(exchange(rank, communicator, tensor).ok());
    WaitForGpu(gpu);
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kRepeats; ++i) ASSERT_TRUE(exchange(rank, communicator, tensor).ok());
    WaitForGpu(gpu);
    if (rank == 1) seconds = std::chrono::duration<double>(Clock::now() - start).count() / kRepeats;
  });
  return seconds;
}

void Record(const std::string& name, const Exchange& exchange) {
  const double seconds = SecondsOf(exchange, kLarge);
  ASSERT_GT(seconds, 0);
  testing::Test::RecordProperty(name + "_mb_per_second", static_cast<int>(kLarge / 1e6 / seconds));
  testing::Test::RecordProperty(name + "_latency_ns", static_cast<int>(1e9 * SecondsOf(exchange, kSmall)));
}

absl::Status SendDown(uint32_t rank, Communicator& communicator, const at::Tensor& tensor) {
  auto transfer = rank == 0 ? communicator.Send(tensor, 1, 0) : communicator.Receive(tensor, 0, 0);
  return transfer.ok() ? (*transfer)->Wait() : transfer.status();
}

absl::Status SendBothWays(uint32_t rank, Communicator& communicator, const at::Tensor& tensor) {
  const int64_t half = tensor.numel() / 2;
  auto receive = communicator.Receive(tensor.narrow(0, 0, half), 1 - rank, 0);
  auto send = communicator.Send(tensor.narrow(0, half, half), 1 - rank, 0);
  if (!receive.ok()) return receive.status();
  if (!send.ok()) return send.status();
  const absl::Status received = (*receive)->Wait();
  return received.ok() ? (*send)->Wait() : received;
}

absl::Status AllReduce(uint32_t, Communicator& communicator, const at::Tensor& tensor) {
  auto reduction = communicator.StartAllReduceSum({tensor.view(at::kFloat)}, {0, 1});
  return reduction.ok() ? (*reduction)->Wait() : reduction.status();
}

TEST(NcclSpeed, BetweenTwoGpus) {
  PENSTOCK_NEEDS_GPUS(2);
  Record("send_receive", SendDown);
  Record("both_directions", SendBothWays);
  Record("all_reduce", AllReduce);
}

}  // namespace
}  // namespace penstock::worker
