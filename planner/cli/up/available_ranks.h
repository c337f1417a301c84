// The ranks that a run has: those that it was started with, less what was lost since.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {

class AvailableRanks {
 public:
  // `full`: of the command line; outlives this object.
  explicit AvailableRanks(const UpOptions& full) : full_(full) {}

  // A rank of a run with `options` is lost: its host, or its GPU, or one of the places of this machine.
  // Returns what that is, for people.
  std::string Lose(const UpOptions& options, uint32_t rank);
  // All hosts that were lost and are back.
  void Return(const std::set<std::string>& hosts);

  const std::set<std::string>& lost_hosts() const { return lost_hosts_; }
  // Workers that can be started, at most as many as at the beginning. Possible errors: those of ReadHostFile.
  absl::StatusOr<uint32_t> Count() const;
  // `full` on a mesh, or on meshes side by side, of ranks that are there. Of all ranks it keeps the
  // strategies that it has; on one mesh of its depth, the stages that it was given.
  UpOptions With(const v1::Strategy& strategy) const;

 private:
  const UpOptions& full_;
  std::set<std::string> lost_hosts_;
  std::set<uint32_t> lost_gpus_;
  // Of this machine, without GPUs.
  uint32_t lost_places_ = 0;
};

}  // namespace penstock::cli
