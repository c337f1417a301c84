// What the visits of one shape found (shape_visits.h), and which kinds of passes the next one has.
//
//   VisitsOfShape visits(kinds.size());
//   visits.Add(times_of_all_kinds);
//   while (...) visits.Add(Measure(visits.NextKinds()));
//   const std::vector<PassTimes> times = visits.Medians();
//
// One visit alone does not tell what a kind takes: a shape that is larger than those before it takes memory
// for the first time, which the kind that comes first pays for, and a neighbour's burst may last as long as
// one kind's turn. The first visit is the one that takes memory: it counts only where there is no other.
#pragma once

#include <cstddef>
#include <vector>

#include "worker/profile/stage_run.h"

namespace penstock::worker {

// Without gradients of weights of a split backward pass.
double BothPasses(const PassTimes& times);

class VisitsOfShape {
 public:
  // `kinds`: at least one.
  explicit VisitsOfShape(size_t kinds) : by_kind_(kinds) {}

  size_t count() const { return by_kind_.front().size(); }
  // All kinds at first; then the first one, and one of the others in turn.
  std::vector<size_t> NextKinds() const;
  // Times of NextKinds(), in its order.
  void Add(const std::vector<PassTimes>& times);

  // Those below: once there was a visit.
  PassTimes MedianOfFirst() const;
  // By kind. Kinds took turns in a visit, so that what slowed one slowed all: of the others it is the median
  // of what they took over the first kind that counts.
  std::vector<PassTimes> Medians() const;
  // What a round of the next visit takes.
  double NextNs() const;

 private:
  // By visit that had the kind. Of all but the first kind over BothPasses of the first one.
  std::vector<std::vector<PassTimes>> by_kind_;
};

}  // namespace penstock::worker
