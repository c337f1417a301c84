#include "worker/profile/visits_of_shape.h"

#include <utility>

#include "absl/types/span.h"

namespace penstock::worker {
namespace {

PassTimes Scaled(PassTimes times, double by) {
  for (double PassTimes::*member : {&PassTimes::forward_ns, &PassTimes::backward_ns, &PassTimes::weight_ns})
    times.*member *= by;
  return times;
}

// Of all but the first visit, where there are others.
PassTimes MedianOf(absl::Span<const PassTimes> visits) {
  if (visits.size() > 1) visits.remove_prefix(1);
  const auto of = [&](double PassTimes::*member) {
    std::vector<double> values;
    values.reserve(visits.size());
    for (const PassTimes& visit : visits) values.push_back(visit.*member);
    return Median(std::move(values));
  };
  return {of(&PassTimes::forward_ns), of(&PassTimes::backward_ns), of(&PassTimes::weight_ns),
          of(&PassTimes::spread)};
}

}  // namespace

double BothPasses(const PassTimes& times) { return times.forward_ns + times.backward_ns; }

std::vector<size_t> VisitsOfShape::NextKinds() const {
  std::vector<size_t> kinds = {0};
  const size_t others = by_kind_.size() - 1;
  for (size_t other = 0; other < others; ++other) {
    if (count() == 0 || other == (count() - 1) % others) kinds.push_back(1 + other);
  }
  return kinds;
}

void VisitsOfShape::Add(const std::vector<PassTimes>& times) {
  const std::vector<size_t> kinds = NextKinds();
  by_kind_.front().push_back(times.front());
  for (size_t i = 1; i < kinds.size(); ++i)
    by_kind_[kinds[i]].push_back(Scaled(times[i], 1 / BothPasses(times.front())));
}

PassTimes VisitsOfShape::MedianOfFirst() const { return MedianOf(by_kind_.front()); }

std::vector<PassTimes> VisitsOfShape::Medians() const {
  std::vector<PassTimes> medians = {MedianOfFirst()};
  for (size_t kind = 1; kind < by_kind_.size(); ++kind)
    medians.push_back(Scaled(MedianOf(by_kind_[kind]), BothPasses(medians.front())));
  return medians;
}

double VisitsOfShape::NextNs() const {
  const std::vector<PassTimes> medians = Medians();
  double ns = 0;
  for (const size_t kind : NextKinds()) ns += BothPasses(medians[kind]);
  return ns;
}

}  // namespace penstock::worker
