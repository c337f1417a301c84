// Orders of the samples in which neighbours are alike, for micro-batches of consecutive samples.
//
// Two samples are alike when padding one to the other costs little. So the lengths are counted in time: a
// sample is the point (time of its source, time of its target), and the way between two points is the time
// that is lost at most when they share a rectangle. A decoder-only sample has no source, and the shortest
// path through points on a line is their order by length.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/model/types.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/partition/sample_path.h"

namespace penstock::core {

// The points of the samples. `time` is a function of TokenSums; where it does not know one of the lengths
// alone (is infinite), all are counted in tokens.
template <typename Time>
std::vector<PathPoint> SampleCosts(const Time& time, absl::Span<const SampleTokens> samples) {
  std::vector<PathPoint> points;
  points.reserve(samples.size());
  bool known = true;
  for (const SampleTokens& sample : samples) {
    points.push_back({time(PaddedSums(1, static_cast<int32_t>(sample.source), 0)),
                      time(PaddedSums(1, 0, static_cast<int32_t>(sample.target), 0, sample.less_square))});
    known = known && std::isfinite(points.back().x) && std::isfinite(points.back().y);
  }
  if (known) return points;
  for (size_t i = 0; i < samples.size(); ++i) {
    points[i] = {static_cast<double>(samples[i].source), static_cast<double>(samples[i].target)};
  }
  return points;
}

// The short path through the points; on a line, the order by length.
std::vector<uint32_t> AlikeOrder(absl::Span<const PathPoint> points, StopToken stop = {});

}  // namespace penstock::core
