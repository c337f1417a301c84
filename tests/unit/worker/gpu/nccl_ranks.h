// Ranks that are threads of one process, each with a GPU, connected over NCCL.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "worker/comm/communicator.h"

namespace penstock::worker {

// One rank on GPU 0, in a group of its own that NCCL has joined. The members end in the order that they need.
struct NcclRank {
  std::unique_ptr<StoreServer> store;
  std::unique_ptr<Communicator> communicator;
};
NcclRank JoinAlone();

using NcclRankBody = std::function<void(uint32_t rank, Communicator& communicator)>;

// Runs `body` for ranks 0 and 1, on GPUs 0 and 1, in a thread each. Both are joined in the group {0, 1}.
// They are one stage group: of two context ranks, or of two tensor ranks. Blocks until both have ended.
enum class Divided : uint8_t { kTokens, kLayers };
void RunTwoRanks(const NcclRankBody& body, Divided divided = Divided::kTokens);

}  // namespace penstock::worker
