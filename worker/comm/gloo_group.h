// A c10d process group over Gloo: the one file that sees Gloo's headers is behind this one.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/groups.h"
#include "worker/comm/store.h"

namespace penstock::worker {

// Connects all ranks of the group with each other; blocks until they have come and have shown that they are
// workers of this epoch. Begins again, on other ports, where a stranger was quicker than a rank (meeting.h).
// Afterwards nobody else can connect to the group's port. `purpose` keeps several groups of the same ranks
// apart. Possible errors: UNAVAILABLE (names the group, and a peer that is a stranger).
absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> JoinGlooGroup(const CommunicatorOptions& options,
                                                                const StoreClient& store,
                                                                const RankGroup& group,
                                                                const std::string& purpose = "gloo");

}  // namespace penstock::worker
