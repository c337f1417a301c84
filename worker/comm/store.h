// The rendezvous of an epoch: a client of the table that rank 0 serves, guarded with the epoch's secret.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/groups.h"

namespace penstock::worker {

using StoreClient = c10::intrusive_ptr<c10d::Store>;

// Blocks until the store has all keys, for at most `patience`, and no longer than `still_wanted` says
// (CommunicatorOptions). Possible errors: DEADLINE_EXCEEDED, UNAVAILABLE (the store), CANCELLED.
absl::Status AwaitKeys(const StoreClient& store, const std::vector<std::string>& keys,
                       std::chrono::milliseconds patience, const std::function<absl::Status()>& still_wanted);

// Keys of other epochs are out of its sight, and keys and values sealed (guarded_store.h). Blocks for at most
// connect_timeout. Possible errors: INVALID_ARGUMENT (rendezvous_address), UNAVAILABLE.
absl::StatusOr<StoreClient> ConnectStore(const CommunicatorOptions& options);

// With what the workers of the epoch know each other on their connections (peer_proof.h).
std::string PeerKey(const CommunicatorOptions& options);

// The part of the store in which a group meets; `purpose` keeps several meetings of one group apart.
StoreClient GroupStore(const StoreClient& store, const std::string& purpose, const RankGroup& group);

}  // namespace penstock::worker
