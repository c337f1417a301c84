#include "tests/unit/worker/gpu/nccl_ranks.h"

#include <gtest/gtest.h>

#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/gpu/gpu_testing.h"

namespace penstock::worker {
namespace {

constexpr uint32_t kRanks = 2;

std::unique_ptr<StoreServer> StartStore() {
  auto store = StoreServer::Start("127.0.0.1");
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

CommunicatorOptions OptionsOf(const StoreServer& store, uint32_t rank) {
  CommunicatorOptions options;
  options.rank = rank;
  options.rendezvous_address = absl::StrCat("127.0.0.1:", store.port());
  options.epoch = 1;
  options.device = Gpu(static_cast<int>(rank));
  return options;
}

}  // namespace

NcclRank JoinAlone() {
  NcclRank alone;
  alone.store = StartStore();
  if (alone.store == nullptr) return alone;
  CommunicatorOptions options = OptionsOf(*alone.store, 0);
  options.groups = {{0}};
  options.join_groups_of_one = true;
  auto communicator = MakeNcclCommunicator(options);
  EXPECT_TRUE(communicator.ok()) << communicator.status();
  if (communicator.ok()) alone.communicator = *std::move(communicator);
  return alone;
}

void RunTwoRanks(const NcclRankBody& body, Divided divided) {
  const std::unique_ptr<StoreServer> store = StartStore();
  ASSERT_NE(store, nullptr);
  // Nobody leaves before both are done: what one has closed fails the other.
  std::latch done(kRanks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options = OptionsOf(*store, rank);
      options.world_size = kRanks;
      options.groups = {{0, 1}};
      const auto own = static_cast<int>(rank);
      if (divided == Divided::kTokens) {
        options.passes = {.place = {.context = own, .contexts = 2}, .tensors = {rank}, .contexts = {0, 1}};
      } else {
        options.passes = {.place = {.tensor = own, .tensors = 2}, .tensors = {0, 1}, .contexts = {rank}};
      }
      auto communicator = MakeNcclCommunicator(options);
      EXPECT_TRUE(communicator.ok()) << communicator.status();
      if (communicator.ok()) body(rank, **communicator);
      done.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace penstock::worker
