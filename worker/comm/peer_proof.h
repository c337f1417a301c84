// Shows the two ends of each connection of a group that both are workers of the epoch.
//
// Gloo takes for a peer whoever connects to its port first and sends a small number. So each end sends a
// random challenge and gets back its HMAC with a key of the epoch's secret, over both challenges, the group
// and who speaks to whom: what another connection answered is of no use. Who has the secret of another epoch,
// or none, does not pass. One who sits on the wire between two workers and changes what he likes does: the
// connection itself is not encrypted.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "absl/status/status.h"
#include "worker/comm/groups.h"

namespace penstock::worker {

struct PeerProofOptions {
  uint32_t rank = 0;
  // Made from the secret of the epoch.
  std::string key = {};
  // Of each message.
  std::chrono::milliseconds timeout = {};
  // Not used for anything else at this time.
  int tag = 0;
};

// Blocks until all others have answered. `group` holds the rank.
// Possible errors: UNAVAILABLE (a peer is gone or silent, or did not show that it is a worker of this epoch;
// names it), INTERNAL (no random bytes).
absl::Status ProvePeers(c10d::Backend& backend, const RankGroup& group, const PeerProofOptions& options);

}  // namespace penstock::worker
