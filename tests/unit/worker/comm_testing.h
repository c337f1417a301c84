// Ranks as threads of one process, connected over loopback.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/program/topology.h"

namespace penstock::worker {

// Time to connect for ranks that meet nobody: their several attempts take nine times as long.
inline constexpr std::chrono::milliseconds kInVain{500};

class CommTestServer {
 public:
  // Of the options of its ranks, who set it themselves.
  explicit CommTestServer(const std::string& secret = "");
  std::string address() const;
  // With all ranks in one group.
  CommunicatorOptions Options(uint32_t rank, uint32_t world_size) const;
  // With the groups of the topology, and passes that exchange.
  CommunicatorOptions Options(uint32_t rank, const Topology& topology) const;

 private:
  std::unique_ptr<StoreServer> server_;
};

using RankBody = std::function<void(uint32_t rank, Communicator& communicator)>;

// Stage groups of contexts * tensors ranks, stage by stage in a replica, one after the other.
Topology TopologyOf(uint32_t replicas, uint32_t stages, uint32_t contexts, uint32_t tensors);

// Runs `body` on each rank in a thread of its own. `groups` of each rank are those of the list that it is in.
void RunRanks(uint32_t world_size, const std::vector<std::vector<uint32_t>>& groups, const RankBody& body);
// All ranks in one group.
void RunRanks(uint32_t world_size, const RankBody& body);
// With the groups of the topology, and passes that exchange.
void RunTopology(const Topology& topology, const RankBody& body);

}  // namespace penstock::worker
