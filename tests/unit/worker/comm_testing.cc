#include "tests/unit/worker/comm_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <numeric>
#include <thread>

namespace penstock::worker {
namespace {

std::vector<uint32_t> AllRanks(uint32_t world_size) {
  std::vector<uint32_t> ranks(world_size);
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

}  // namespace

CommTestServer::CommTestServer(const std::string& secret) {
  auto server = StoreServer::Start("127.0.0.1", secret);
  EXPECT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
}

std::string CommTestServer::address() const { return "127.0.0.1:" + std::to_string(server_->port()); }

CommunicatorOptions CommTestServer::Options(uint32_t rank, uint32_t world_size) const {
  CommunicatorOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.rendezvous_address = address();
  options.groups = {AllRanks(world_size)};
  return options;
}

void RunRanks(uint32_t world_size, const std::vector<std::vector<uint32_t>>& groups, const RankBody& body) {
  const CommTestServer server;
  // Nobody leaves before all have joined: a connection that closes while others connect fails their joining.
  std::latch joined(world_size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options = server.Options(rank, world_size);
      options.groups.clear();
      for (const auto& group : groups) {
        if (std::find(group.begin(), group.end(), rank) != group.end()) options.groups.push_back(group);
      }
      auto communicator = MakeGlooCommunicator(options);
      joined.arrive_and_wait();
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      body(rank, **communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void RunRanks(uint32_t world_size, const RankBody& body) {
  RunRanks(world_size, {AllRanks(world_size)}, body);
}

}  // namespace penstock::worker
