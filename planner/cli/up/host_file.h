// The hosts that workers are started on: a file of lines
//
//   # name or address as ssh takes it, and how many workers it runs (1)
//   node-a slots=4
//   node-b slots=4
//   10.0.0.7
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock::cli {

struct WorkerHost {
  std::string name;
  uint32_t slots = 1;
};

// `file` is what errors call it. Possible errors: INVALID_ARGUMENT (naming file and line; a host that is
// there twice, or none at all).
absl::StatusOr<std::vector<WorkerHost>> ParseHosts(absl::string_view file, absl::string_view text);

// Of --hosts. Possible errors: NOT_FOUND, those of ParseHosts.
absl::StatusOr<std::vector<WorkerHost>> ReadHostFile(const std::string& path);

// The host of each rank: all slots of the first host, then those of the next. Possible errors:
// INVALID_ARGUMENT (fewer slots than ranks; names --hosts).
absl::StatusOr<std::vector<std::string>> HostOfEachRank(const std::vector<WorkerHost>& hosts, uint32_t ranks);

// Whether the name is that of the machine that asks, by its local address.
bool IsThisMachine(absl::string_view name);

}  // namespace penstock::cli
