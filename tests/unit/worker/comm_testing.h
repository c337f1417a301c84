// Ranks as threads of one process, connected over loopback.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/comm/communicator.h"

namespace penstock::worker {

class CommTestServer {
 public:
  // Of the options of its ranks, who set it themselves.
  explicit CommTestServer(const std::string& secret = "");
  std::string address() const;
  // With all ranks in one group.
  CommunicatorOptions Options(uint32_t rank, uint32_t world_size) const;

 private:
  std::unique_ptr<StoreServer> server_;
};

using RankBody = std::function<void(uint32_t rank, Communicator& communicator)>;

// Runs `body` on each rank in a thread of its own. `groups` of each rank are those of the list that it is in.
void RunRanks(uint32_t world_size, const std::vector<std::vector<uint32_t>>& groups, const RankBody& body);
// All ranks in one group.
void RunRanks(uint32_t world_size, const RankBody& body);

}  // namespace penstock::worker
