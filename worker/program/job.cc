#include "worker/program/job.h"

#include <algorithm>

namespace penstock::worker {

uint32_t JobConfig::strategy_count() const {
  return std::max(uint32_t{1}, static_cast<uint32_t>(strategies.size()));
}

JobConfig JobConfig::Of(uint32_t strategy) const {
  JobConfig job = *this;
  job.strategies.clear();
  if (strategies.empty()) return job;
  const StrategyConfig& chosen = strategies[strategy];
  job.pipeline = chosen.pipeline;
  job.replicas = chosen.replicas;
  job.context = chosen.context;
  job.tensor = chosen.tensor;
  job.expert = chosen.expert;
  job.topology = chosen.topology;
  return job;
}

}  // namespace penstock::worker
