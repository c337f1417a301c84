#include "planner/core/bound/ramp_bound.h"

#include <algorithm>
#include <cmath>

#include "planner/core/bound/infinity.h"

namespace penstock::core {
namespace {

// Numbers of micro-batches of a replica that are looked at one by one.
constexpr int kCounts = 256;

}  // namespace

RampBound::RampBound(const PipelineBound& pipeline, const LayerVector& overhead)
    : pipeline_(pipeline),
      overhead_(overhead),
      fastest_ns_(pipeline.stages.size() + 1),
      all_ns_(pipeline.stages.size() + 1) {
  for (const RankBound& bound : pipeline.ranks) {
    Rank rank;
    rank.first_stage = bound.stages.front();
    rank.fastest_stage = kInfinity;
    rank.all_stages = kInfinity;
    for (const int stage : bound.stages) {
      for (const BoundPass pass : {BoundPass::kForward, BoundPass::kWhole}) {
        const LayerVector& coefficients = pipeline.stages[stage].pass(pass);
        for (size_t i = 0; i < coefficients.size(); ++i) rank.work[i] += coefficients[i];
      }
    }
    ranks_.push_back(rank);
  }
  Add(overhead);
}

void RampBound::Add(const LayerVector& linear) {
  fastest_ns_[0] = kInfinity;
  all_ns_[0] = 0;
  for (size_t stage = 0; stage < pipeline_.stages.size(); ++stage) {
    const double forward = Dot(pipeline_.stages[stage].pass(BoundPass::kForward), linear);
    fastest_ns_[stage + 1] = std::min(fastest_ns_[stage], forward);
    all_ns_[stage + 1] = all_ns_[stage] + forward;
  }
  for (Rank& rank : ranks_) {
    const double work = Dot(rank.work, linear);
    if (work <= 0) continue;
    rank.fastest_stage = std::min(rank.fastest_stage, fastest_ns_[rank.first_stage] / work);
    rank.all_stages = std::min(rank.all_stages, all_ns_[rank.first_stage] / work);
  }
}

double RampBound::RankNs(size_t index, const LayerVector& linear, double samples) const {
  const Rank& rank = ranks_[index];
  const double work = Dot(rank.work, linear);
  const double overhead = Dot(rank.work, overhead_);
  const double gain = 1 - rank.fastest_stage;
  if (rank.first_stage == 0 || gain <= 0 || rank.all_stages <= 0) return work + overhead;
  const double growth = 1 + gain / rank.all_stages;
  const int counts = static_cast<int>(std::min<double>(samples, kCounts));
  // With more micro-batches than are looked at, at least their overheads.
  double least = samples > counts ? work + counts * overhead : kInfinity;
  double power = 1;
  for (int count = 1; count <= counts; ++count) {
    power *= growth;
    least = std::min(least, (work + count * overhead) * (1 + gain / (power - 1)));
  }
  return least;
}

}  // namespace penstock::core
