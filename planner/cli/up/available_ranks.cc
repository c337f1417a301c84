#include "planner/cli/up/available_ranks.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/cli/up/host_file.h"

namespace penstock::cli {

std::string AvailableRanks::Lose(const UpOptions& options, uint32_t rank) {
  if (!options.hosts.empty()) {
    lost_hosts_.insert(options.hosts[rank]);
    return absl::StrCat("host ", options.hosts[rank]);
  }
  if (IsOnGpus(options)) {
    lost_gpus_.insert(options.gpus[rank]);
    return absl::StrCat("GPU ", options.gpus[rank]);
  }
  ++lost_places_;
  return "a worker of this machine";
}

void AvailableRanks::Return(const std::set<std::string>& hosts) {
  for (const std::string& host : hosts) lost_hosts_.erase(host);
}

absl::StatusOr<uint32_t> AvailableRanks::Count() const {
  const uint32_t all = WorkerCount(full_);
  if (full_.hosts_file.empty())
    return all - std::min(all, static_cast<uint32_t>(lost_gpus_.size()) + lost_places_);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<WorkerHost> hosts, ReadHostFile(full_.hosts_file));
  uint32_t slots = 0;
  for (const WorkerHost& host : hosts) slots += lost_hosts_.contains(host.name) ? 0 : host.slots;
  return std::min(all, slots);
}

UpOptions AvailableRanks::With(const v1::Strategy& strategy) const {
  UpOptions options = full_;
  // They are of all ranks. Weights that are chosen are chosen anew.
  if (RanksOf(strategy) != WorkerCount(full_)) {
    options.strategies.clear();
    options.planning.share_weights.weights.clear();
    options.planning.rank_memory.only_least = true;
  }
  UseMesh(strategy.meshes(0).mesh(), &options);
  if (strategy.meshes_size() > 1 || options.pipeline != full_.pipeline) {
    options.planning.layers_per_stage.clear();
    options.planning.rank_of_stage.clear();
  }
  if (strategy.meshes_size() > 1) {
    UseStrategies({strategy}, &options);
    options.planning.shard_optimizer_state = false;
  }
  options.lost_hosts = lost_hosts_;
  if (!IsOnGpus(full_) || !full_.hosts_file.empty()) return options;
  // Those that were named, or the first ones.
  std::vector<uint32_t>& gpus = options.device.gpus;
  for (uint32_t gpu = 0; full_.device.gpus.empty() && gpu < WorkerCount(full_); ++gpu) gpus.push_back(gpu);
  std::erase_if(gpus, [this](uint32_t gpu) { return lost_gpus_.contains(gpu); });
  gpus.resize(std::min<size_t>(gpus.size(), WorkerCount(options)));
  return options;
}

}  // namespace penstock::cli
