#include "planner/core/strategies/bound_of_meshes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace penstock::core {
namespace {

constexpr int kRounds = 40;
constexpr double kStep = 0.5;

// The longest sample on the mesh where it takes least.
double LongestAlone(const std::vector<MeshLoad>& loads) {
  double longest = 0;
  for (size_t sample = 0; sample < loads.front().samples.size(); ++sample) {
    double least = std::numeric_limits<double>::infinity();
    for (const MeshLoad& load : loads)
      if (load.samples[sample].fits) least = std::min(least, load.samples[sample].least_alone_ns);
    if (std::isfinite(least)) longest = std::max(longest, least);
  }
  return longest;
}

// With these weights of the meshes. `share`: the weighted work that each mesh has then.
double WeightedWork(const std::vector<MeshLoad>& loads, const std::vector<double>& weights,
                    std::vector<double>* share) {
  share->assign(loads.size(), 0);
  double work = 0;
  for (size_t sample = 0; sample < loads.front().samples.size(); ++sample) {
    double least = std::numeric_limits<double>::infinity();
    size_t best = loads.size();
    for (size_t mesh = 0; mesh < loads.size(); ++mesh) {
      if (!loads[mesh].samples[sample].fits) continue;
      const double own = loads[mesh].samples[sample].least_work_ns / loads[mesh].replicas;
      if (weights[mesh] * own >= least) continue;
      least = weights[mesh] * own;
      best = mesh;
    }
    if (best == loads.size()) continue;
    work += least;
    (*share)[best] += least / weights[best];
  }
  return work;
}

}  // namespace

double BoundOfMeshes(const std::vector<MeshLoad>& loads, double whole_ns) {
  std::vector<double> weights(loads.size(), 1.0 / static_cast<double>(loads.size()));
  std::vector<double> share;
  double most = 0;
  for (int round = 0; round < kRounds; ++round) {
    most = std::max(most, WeightedWork(loads, weights, &share));
    double mean = 0;
    for (size_t mesh = 0; mesh < loads.size(); ++mesh) mean += weights[mesh] * share[mesh];
    if (mean <= 0) break;
    // A mesh that has more than the mean should weigh more, so that less is on it.
    double sum = 0;
    for (size_t mesh = 0; mesh < loads.size(); ++mesh) {
      weights[mesh] *= std::exp(kStep / std::sqrt(round + 1.0) * (std::min(share[mesh] / mean, 3.0) - 1));
      sum += weights[mesh];
    }
    for (double& weight : weights) weight /= sum;
  }
  return std::max(LongestAlone(loads), most + whole_ns);
}

}  // namespace penstock::core
