#include "planner/core/strategies/sample_assignment.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <set>

namespace penstock::core {
namespace {

constexpr double kNeverEnds = std::numeric_limits<double>::infinity();
// Rounds in which the mesh that ends last gives something away; each is one pass over the samples.
constexpr int kMostMoves = 400;

// No sample.
constexpr size_t kNone = std::numeric_limits<size_t>::max();

// A mesh with some of its samples. A replica is as busy as its part of all of them, while the pipeline fills
// and drains as with micro-batches like the mean sample; and the longest sample has to go the whole way.
class MeshEnd {
 public:
  explicit MeshEnd(const MeshLoad& load) : load_(&load) {}

  void Add(size_t sample) {
    busiest_ns_ += Of(sample).busiest_ns;
    ramp_ns_ += RampOf(sample);
    paths_.insert(Of(sample).path_ns);
    samples_.push_back(sample);
  }
  void Remove(size_t sample) {
    busiest_ns_ -= Of(sample).busiest_ns;
    ramp_ns_ -= RampOf(sample);
    paths_.erase(paths_.find(Of(sample).path_ns));
    samples_.erase(std::ranges::find(samples_, sample));
  }

  // With one sample more and another one less.
  double End(size_t with = kNone, size_t without = kNone) const {
    double busiest = busiest_ns_, ramp = ramp_ns_, path = 0;
    auto count = static_cast<double>(samples_.size());
    if (with != kNone) {
      if (!Of(with).fits) return kNeverEnds;
      busiest += Of(with).busiest_ns;
      ramp += RampOf(with);
      path = Of(with).path_ns;
      ++count;
    }
    if (without != kNone) {
      busiest -= Of(without).busiest_ns;
      ramp -= RampOf(without);
      --count;
    }
    auto longest = paths_.rbegin();
    if (without != kNone && *longest == Of(without).path_ns) ++longest;
    if (longest != paths_.rend()) path = std::max(path, *longest);
    return load_->factor * std::max(path, busiest / load_->replicas + ramp / std::max(count, 1.0));
  }

  const std::vector<size_t>& samples() const { return samples_; }

 private:
  const SampleEstimate& Of(size_t sample) const { return load_->samples[sample]; }
  double RampOf(size_t sample) const { return Of(sample).path_ns - Of(sample).busiest_ns; }

  const MeshLoad* load_;
  double busiest_ns_ = 0;
  double ramp_ns_ = 0;
  std::multiset<double> paths_;
  std::vector<size_t> samples_;
};

// The longest first, by what they take on the mesh where they take least.
std::vector<size_t> LongestFirst(const std::vector<MeshLoad>& loads) {
  std::vector<double> least(loads.front().samples.size(), kNeverEnds);
  for (const MeshLoad& load : loads) {
    for (size_t i = 0; i < least.size(); ++i) {
      if (load.samples[i].fits) least[i] = std::min(least[i], load.samples[i].busiest_ns / load.replicas);
    }
  }
  std::vector<size_t> order(least.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return least[a] > least[b]; });
  return order;
}

class Assigner {
 public:
  explicit Assigner(const std::vector<MeshLoad>& loads) {
    for (const MeshLoad& load : loads) ends_.emplace_back(load);
  }

  bool GiveOut(const std::vector<size_t>& order) {
    return std::ranges::all_of(order, [this](size_t sample) { return GiveOut(sample); });
  }

  void Improve() {
    for (int move = 0; move < kMostMoves; ++move) {
      if (!RelieveLast()) return;
    }
  }

  std::vector<int> Result(size_t samples) const {
    std::vector<int> result(samples, 0);
    for (size_t mesh = 0; mesh < ends_.size(); ++mesh)
      for (const size_t sample : ends_[mesh].samples()) result[sample] = static_cast<int>(mesh);
    return result;
  }

 private:
  bool GiveOut(size_t sample) {
    size_t best = 0;
    double end = kNeverEnds;
    for (size_t mesh = 0; mesh < ends_.size(); ++mesh) {
      const double with = ends_[mesh].End(sample);
      if (with >= end) continue;
      end = with;
      best = mesh;
    }
    if (end == kNeverEnds) return false;
    ends_[best].Add(sample);
    return true;
  }

  struct Change {
    size_t sample = 0;
    size_t to = 0;
    // What comes back.
    size_t back = kNone;
    double end = kNeverEnds;
  };

  // Whether the mesh that ends last ends earlier now.
  bool RelieveLast() {
    size_t last = 0;
    for (size_t mesh = 1; mesh < ends_.size(); ++mesh)
      if (ends_[mesh].End() > ends_[last].End()) last = mesh;
    Change best;
    // A part in a million is no gain.
    const double worth = ends_[last].End() * (1 - 1e-6);
    best.end = worth;
    for (const size_t sample : ends_[last].samples()) {
      for (size_t to = 0; to < ends_.size(); ++to)
        if (to != last) TryMoves(last, sample, to, &best);
    }
    if (best.end >= worth) return false;
    ends_[last].Remove(best.sample);
    if (best.back != kNone) {
      ends_[best.to].Remove(best.back);
      ends_[last].Add(best.back);
    }
    ends_[best.to].Add(best.sample);
    return true;
  }

  void TryMoves(size_t last, size_t sample, size_t to, Change* best) const {
    const double moved = std::max(ends_[last].End(kNone, sample), ends_[to].End(sample));
    if (moved < best->end) *best = {.sample = sample, .to = to, .end = moved};
    // Exchanges with a few of the other's: every so-manieth, so that a round stays linear.
    const std::vector<size_t>& others = ends_[to].samples();
    const size_t step = std::max<size_t>(1, others.size() / 8);
    for (size_t i = 0; i < others.size(); i += step) {
      const double end = std::max(ends_[last].End(others[i], sample), ends_[to].End(sample, others[i]));
      if (end < best->end) *best = {.sample = sample, .to = to, .back = others[i], .end = end};
    }
  }

  std::vector<MeshEnd> ends_;
};

}  // namespace

std::vector<int> AssignSamples(const std::vector<MeshLoad>& loads) {
  const std::vector<size_t> order = LongestFirst(loads);
  Assigner assigner(loads);
  if (!assigner.GiveOut(order)) return {};
  assigner.Improve();
  return assigner.Result(loads.front().samples.size());
}

double EndOfMesh(const MeshLoad& load, const std::vector<int>& mesh_of_sample, int mesh) {
  MeshEnd end(load);
  for (size_t sample = 0; sample < mesh_of_sample.size(); ++sample)
    if (mesh_of_sample[sample] == mesh) end.Add(sample);
  return end.End();
}

}  // namespace penstock::core
