#include "worker/profile/measure_link.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/comm/communicator.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLargeBytes = int64_t{8} << 20;
constexpr int64_t kLargeGpuBytes = int64_t{64} << 20;
constexpr int kRounds = 8;
// Float32 rows as wide as those of a model.
constexpr int64_t kCollectiveWidth = 1024;
constexpr int64_t kFewRowsOfRank = 8;
constexpr int64_t kManyRows = 2048;
// More of them than a machine has cores for say little, and take long.
constexpr uint32_t kMostRanksSideBySide = 64;
// Of a small exchange most is waiting, so that a busy machine disturbs it most.
constexpr int kSmallRounds = 100;
constexpr int kLargeRounds = 15;
// Of a product that is short beside an exchange.
constexpr int64_t kProductWidth = 96;

MeasuredLink LinkOf(double small_ns, double large_ns, int64_t large_bytes) {
  const double transfer_ns = std::max(large_ns - small_ns, 1.0);
  return {static_cast<double>(large_bytes) / transfer_ns * 1e9, static_cast<int64_t>(small_ns)};
}

CommunicatorOptions RankOptions(uint32_t rank, uint32_t ranks, uint16_t port) {
  CommunicatorOptions options;
  options.rank = rank;
  options.world_size = ranks;
  options.rendezvous_address = absl::StrCat("127.0.0.1:", port);
  options.groups = {std::vector<uint32_t>(ranks)};
  std::iota(options.groups.front().begin(), options.groups.front().end(), 0);
  options.timeout = std::chrono::milliseconds(10'000);
  return options;
}

absl::Status Move(Communicator& communicator, const at::Tensor& tensor, bool send, uint32_t peer) {
  PENSTOCK_ASSIGN_OR_RETURN(
      auto transfer, send ? communicator.Send(tensor, peer, 0) : communicator.Receive(tensor, peer, 0));
  return transfer->Wait();
}

// Back and forth, `kRounds` times; the shortest way there and back, halved, nanoseconds.
absl::StatusOr<double> PingPong(Communicator& communicator, uint32_t rank, int64_t bytes) {
  const at::Tensor tensor = at::zeros({bytes}, at::kByte);
  double shortest = 1e18;
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point start = Clock::now();
    PENSTOCK_RETURN_IF_ERROR(Move(communicator, tensor, rank == 0, 1 - rank));
    PENSTOCK_RETURN_IF_ERROR(Move(communicator, tensor, rank == 1, 1 - rank));
    shortest = std::min(shortest, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / 2);
  }
  return shortest;
}

// What one rank of so many measures, of its number and the port of the store.
template <typename Measured>
using MeasureAsRank = absl::StatusOr<Measured> (*)(uint32_t rank, uint32_t ranks, uint16_t port);

absl::StatusOr<MeasuredLink> MeasureTransfers(uint32_t rank, uint32_t ranks, uint16_t port) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto communicator, MakeGlooCommunicator(RankOptions(rank, ranks, port)));
  PENSTOCK_ASSIGN_OR_RETURN(const double small_ns, PingPong(*communicator, rank, 1));
  PENSTOCK_ASSIGN_OR_RETURN(const double large_ns, PingPong(*communicator, rank, kLargeBytes));
  return LinkOf(small_ns, large_ns, kLargeBytes);
}

// Each rank has its part of the rows and sends as many bytes to gather them as to sum them: the mean of the
// two, nanoseconds, of the quickest round.
absl::StatusOr<double> GatherAndSum(StageGroup& group, int64_t rows, int rounds) {
  const at::Tensor whole = at::zeros({rows, kCollectiveWidth}, at::kFloat);
  const at::Tensor own = whole.narrow(0, 0, rows / group.place().tensors);
  double shortest = 1e18;
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point start = Clock::now();
    group.GatherRows(own, rows);
    group.SumRows(whole, rows);
    shortest = std::min(shortest, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / 2);
  }
  PENSTOCK_RETURN_IF_ERROR(group.status());
  return shortest;
}

// The quickest of some, nanoseconds.
double Quickest(int rounds, const std::function<void()>& run) {
  double shortest = 1e18;
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point start = Clock::now();
    run();
    shortest = std::min(shortest, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  return shortest;
}

// How much of an exchange of rows goes on while the rank multiplies about as long: from what both take alone,
// and together.
absl::StatusOr<double> MeasureOverlap(StageGroup& group) {
  const at::Tensor rows = at::zeros({kManyRows, kCollectiveWidth}, at::kFloat);
  const std::vector<int64_t> halves = {kManyRows / 2, kManyRows / 2};
  const at::Tensor factor = at::zeros({kProductWidth, kProductWidth}, at::kFloat);
  const double exchange_ns =
      Quickest(kLargeRounds, [&] { group.StartExpertRows(rows, halves, halves)->Wait(); });
  const double product_ns = Quickest(kLargeRounds, [&] { factor.mm(factor); });
  const auto products = static_cast<int>(std::max(1.0, exchange_ns / product_ns));
  const auto multiply = [&] {
    for (int i = 0; i < products; ++i) factor.mm(factor);
  };
  const double products_ns = Quickest(kLargeRounds, multiply);
  const double both_ns = Quickest(kLargeRounds, [&] {
    const std::unique_ptr<PendingRows> exchange = group.StartExpertRows(rows, halves, halves);
    multiply();
    exchange->Wait();
  });
  PENSTOCK_RETURN_IF_ERROR(group.status());
  return std::clamp((exchange_ns + products_ns - both_ns) / std::min(exchange_ns, products_ns), 0.0, 1.0);
}

// All ranks are tensor ranks, and divide the experts.
CommunicatorOptions OptionsOfTensorRank(uint32_t rank, uint32_t ranks, uint16_t port) {
  CommunicatorOptions options = RankOptions(rank, ranks, port);
  const auto count = static_cast<int>(ranks);
  options.passes = {{.tensor = static_cast<int>(rank), .tensors = count, .experts = count},
                    options.groups.front(),
                    {rank},
                    options.groups.front()};
  return options;
}

// The line through two sizes, for each byte that a rank sends.
absl::StatusOr<MeasuredLink> LinkOfExchanges(StageGroup& group) {
  const auto ranks = static_cast<double>(group.place().tensors);
  // So many times the rows that are there each rank sends.
  const double sent = (ranks - 1) / ranks;
  const int64_t few = kFewRowsOfRank * group.place().tensors;
  PENSTOCK_ASSIGN_OR_RETURN(const double small_ns, GatherAndSum(group, few, kSmallRounds));
  PENSTOCK_ASSIGN_OR_RETURN(const double large_ns, GatherAndSum(group, kManyRows, kLargeRounds));
  constexpr double kRowBytes = kCollectiveWidth * sizeof(float);
  const double row_ns = std::max(large_ns - small_ns, 1.0) / (static_cast<double>(kManyRows - few) * sent);
  const double latency_ns = std::max(small_ns - static_cast<double>(few) * sent * row_ns, 1.0);
  return MeasuredLink{kRowBytes / row_ns * 1e9, static_cast<int64_t>(latency_ns)};
}

absl::StatusOr<MeasuredCollective> MeasureExchanges(uint32_t rank, uint32_t ranks, uint16_t port) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto communicator,
                            MakeGlooCommunicator(OptionsOfTensorRank(rank, ranks, port)));
  StageGroup& group = *communicator->stage_group();
  MeasuredCollective collective;
  PENSTOCK_ASSIGN_OR_RETURN(collective.link, LinkOfExchanges(group));
  PENSTOCK_ASSIGN_OR_RETURN(collective.overlap, MeasureOverlap(group));
  return collective;
}

absl::StatusOr<MeasuredLink> MeasureExchangesAlone(uint32_t rank, uint32_t ranks, uint16_t port) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto communicator,
                            MakeGlooCommunicator(OptionsOfTensorRank(rank, ranks, port)));
  return LinkOfExchanges(*communicator->stage_group());
}

// All ranks but the first have threads of their own.
template <typename Measured>
absl::StatusOr<Measured> MeasureLoopback(MeasureAsRank<Measured> measure, uint32_t ranks = 2) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto store, StoreServer::Start("127.0.0.1"));
  std::vector<std::thread> others;
  for (uint32_t rank = 1; rank < ranks; ++rank)
    others.emplace_back([=, port = store->port()] { measure(rank, ranks, port).status().IgnoreError(); });
  absl::StatusOr<Measured> measured = measure(0, ranks, store->port());
  for (std::thread& other : others) other.join();
  return measured;
}

// The shortest of some copies of so many bytes, nanoseconds.
double CopyNanoseconds(at::Device from, at::Device to, int64_t bytes) {
  const at::Tensor source = at::zeros({bytes}, at::TensorOptions(from).dtype(at::kByte));
  const at::Tensor target = at::zeros({bytes}, at::TensorOptions(to).dtype(at::kByte));
  const c10::impl::VirtualGuardImpl guard(from.type());
  const auto wait = [&] {
    guard.synchronizeDevice(from.index());
    guard.synchronizeDevice(to.index());
  };
  double shortest = 1e18;
  for (int round = 0; round < kRounds; ++round) {
    wait();
    const Clock::time_point start = Clock::now();
    target.copy_(source, /*non_blocking=*/true);
    wait();
    shortest = std::min(shortest, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  return shortest;
}

}  // namespace

absl::StatusOr<MeasuredLink> MeasureLink(const MeasuredDevice& device) {
  if (device.place.is_cpu()) return MeasureLoopback<MeasuredLink>(MeasureTransfers);
  const int devices = c10::impl::VirtualGuardImpl(device.place.type()).deviceCount();
  if (devices < 2) return MeasureLoopback<MeasuredLink>(MeasureTransfers);
  const at::Device next(device.place.type(),
                        static_cast<c10::DeviceIndex>((device.place.index() + 1) % devices));
  return CallTorch("copies between GPUs", [&] {
    const double small_ns = CopyNanoseconds(device.place, next, 1);
    return LinkOf(small_ns, CopyNanoseconds(device.place, next, kLargeGpuBytes), kLargeGpuBytes);
  });
}

absl::StatusOr<MeasuredCollective> MeasureCollective(const MeasuredDevice& device, uint32_t ranks) {
  if (!device.place.is_cpu()) return MeasuredCollective{.overlap = 1};
  PENSTOCK_ASSIGN_OR_RETURN(MeasuredCollective collective,
                            MeasureLoopback<MeasuredCollective>(MeasureExchanges));
  for (uint32_t count = 4; count <= std::min(ranks, kMostRanksSideBySide); count *= 2) {
    PENSTOCK_ASSIGN_OR_RETURN(const MeasuredLink link,
                              MeasureLoopback<MeasuredLink>(MeasureExchangesAlone, count));
    collective.by_ranks.push_back({.ranks = count, .link = link});
  }
  return collective;
}

}  // namespace penstock::worker
