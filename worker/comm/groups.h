// The groups of a communicator's options, checked, and in an order that all ranks share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {

using RankGroup = std::vector<uint32_t>;

// The groups of more than one rank (or all, with join_groups_of_one) without repetition, sorted, so that
// ranks which share several groups join them in one order and never wait for each other in a circle. Possible
// errors: INVALID_ARGUMENT (names the option: a group without this rank, a rank twice or out of range).
absl::StatusOr<std::vector<RankGroup>> GroupsToJoin(const CommunicatorOptions& options);

// Of all strategies, in their order.
std::vector<PassGroups> PassesOf(const CommunicatorOptions& options);

// Of each of these: its tensor ranks, then its context ranks, then those of other experts; a group of
// one is left out. All ranks join them in this order, behind the others, those that come again once. Possible
// errors: as above, and a place that is not this rank's.
absl::StatusOr<std::vector<RankGroup>> PassGroupsToJoin(const CommunicatorOptions& options);

// The same of passes that are joined later. `name`: what errors call them.
absl::StatusOr<std::vector<RankGroup>> PassGroupsToJoin(const CommunicatorOptions& options,
                                                        const PassGroups& passes, const std::string& name);

// Place of the rank in the group.
std::optional<int> PositionIn(const RankGroup& group, uint32_t rank);

// "0, 2, 4"
std::string Describe(const RankGroup& group);

}  // namespace penstock::worker
