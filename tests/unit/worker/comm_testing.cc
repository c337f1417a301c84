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

// Nobody leaves before all have joined: a connection that closes while others connect fails their joining.
void RunWith(uint32_t world_size, const RankBody& body,
             const std::function<CommunicatorOptions(uint32_t rank)>& options_of) {
  std::latch joined(world_size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      auto communicator = MakeGlooCommunicator(options_of(rank));
      joined.arrive_and_wait();
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      body(rank, **communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
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

CommunicatorOptions CommTestServer::Options(uint32_t rank, const Topology& topology) const {
  CommunicatorOptions options = Options(rank, topology.ranks());
  options.groups = topology.GroupsOf(rank);
  options.links = topology.LinksOf(rank);
  options.passes = {.place = topology.PlaceOf(rank),
                    .tensors = topology.TensorGroup(rank),
                    .contexts = topology.ContextGroup(rank),
                    .experts = topology.ExpertGroup(rank)};
  return options;
}

Topology TopologyOf(uint32_t replicas, uint32_t stages, uint32_t contexts, uint32_t tensors) {
  Topology topology;
  uint32_t rank = 0;
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    ReplicaTopology& made = topology.replicas.emplace_back();
    made.tensor = tensors;
    for (uint32_t stage = 0; stage < stages; ++stage) {
      RankGroup& group = made.stages.emplace_back().ranks;
      for (uint32_t place = 0; place < contexts * tensors; ++place) group.push_back(rank++);
    }
  }
  return topology;
}

void RunRanks(uint32_t world_size, const std::vector<std::vector<uint32_t>>& groups, const RankBody& body) {
  const CommTestServer server;
  RunWith(world_size, body, [&](uint32_t rank) {
    CommunicatorOptions options = server.Options(rank, world_size);
    options.groups.clear();
    for (const auto& group : groups) {
      if (std::find(group.begin(), group.end(), rank) != group.end()) options.groups.push_back(group);
    }
    return options;
  });
}

void RunTopology(const Topology& topology, const RankBody& body) {
  const CommTestServer server;
  RunWith(topology.ranks(), body, [&](uint32_t rank) { return server.Options(rank, topology); });
}

void RunRanks(uint32_t world_size, const RankBody& body) {
  RunRanks(world_size, {AllRanks(world_size)}, body);
}

}  // namespace penstock::worker
