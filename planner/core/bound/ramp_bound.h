// How fast a rank behind others can get work: a micro-batch reaches it only after all stages before have run
// it, one micro-batch at a time, so the first ones must be small or the rank waits; and each one has its
// overhead.
//
//   RampBound ramp(pipeline, overhead);
//   for (sample) ramp.Add(linear);
//   ramp.RankNs(rank, linear / replicas, samples);
//
// docs/planning.md, "Lower bound", has the proof.
#pragma once

#include <vector>

#include "planner/core/bound/pipeline_bound.h"

namespace penstock::core {

class RampBound {
 public:
  // `overhead`: what every micro-batch pays once.
  RampBound(const PipelineBound& pipeline, const LayerVector& overhead);

  // The linear part of one sample.
  void Add(const LayerVector& linear);

  // From the start to the end of the last pass of a rank in the replica that has most to do there, for a
  // pipeline whose replicas have `linear` work each on average; without transfers.
  double RankNs(size_t rank, const LayerVector& linear, double samples) const;

 private:
  struct Rank {
    // All passes of the rank's stages.
    LayerVector work = {};
    int first_stage = 0;
    // For every micro-batch, at least so many times its work on this rank: the forward pass on the fastest
    // stage before it, and those on all stages before it together.
    double fastest_stage = 0;
    double all_stages = 0;
  };

  const PipelineBound& pipeline_;
  LayerVector overhead_;
  std::vector<Rank> ranks_;
  // By number of stages before.
  std::vector<double> fastest_ns_;
  std::vector<double> all_ns_;
};

}  // namespace penstock::core
