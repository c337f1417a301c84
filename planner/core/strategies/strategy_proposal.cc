#include "planner/core/strategies/strategy_proposal.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace penstock::core {
namespace {

constexpr double kNoEnd = std::numeric_limits<double>::infinity();

// Ranks are counted in so many steps or somewhat more, whatever the cluster.
constexpr int kRankSteps = 64;

// What every micro-batch takes on the busiest position, whatever is in it; and what samples add to that.
struct BusiestTime {
  double once_ns = 0;
  double work_ns = 0;
};

BusiestTime SplitBusiest(const ReplicaKind& kind, const SampleEstimate& sample) {
  const double imbalance = sample.path_ns > 0 ? sample.busiest_ns * kind.positions / sample.path_ns : 1;
  const double work = std::min(sample.busiest_ns, sample.least_work_ns * imbalance);
  return {.once_ns = sample.busiest_ns - work, .work_ns = work};
}

// Of samples of some lengths.
struct SamplesOfKind {
  double samples = 0;
  BusiestTime sum;
  // Of their ways through all positions but the busiest, over the time on that.
  double busiest_ns = 0;
  double path_ns = 0;
  double longest_ns = 0;
};

double EndOf(const ReplicaKind& kind, const SamplesOfKind& sums, int replicas) {
  if (sums.samples <= 0) return kind.whole_ns;
  const double work = sums.sum.work_ns / replicas, once = sums.sum.once_ns / sums.samples;
  const double ramp = sums.busiest_ns > 0 ? sums.path_ns / sums.busiest_ns - 1 : 0;
  // With m micro-batches: work + m once + ramp (work / m + once), the least of it where its derivative is 0.
  const double most = std::max(1.0, sums.samples / replicas);
  const double micro_batches = once > 0 ? std::clamp(std::sqrt(work * ramp / once), 1.0, most) : most;
  const double all = work + micro_batches * once + ramp * (work / micro_batches + once);
  return kind.whole_ns + std::max(sums.longest_ns, all);
}

// The programme counts ranks in steps. Replicas of a kind come in portions, the fewest that take whole steps.
class RankSteps {
 public:
  explicit RankSteps(int ranks) : step_(StepOf(ranks)), steps_(ranks / step_) {}

  int steps() const { return steps_; }
  int ReplicasOfPortion(const ReplicaKind& kind) const { return step_ / std::gcd(step_, kind.ranks); }
  int StepsOfPortion(const ReplicaKind& kind) const { return kind.ranks / std::gcd(step_, kind.ranks); }

 private:
  // A divisor of all ranks.
  static int StepOf(int ranks) {
    for (int step = std::max(1, ranks / kRankSteps); step > 1; --step)
      if (ranks % step == 0) return step;
    return 1;
  }

  int step_;
  int steps_;
};

// False where a sample of this length does not fit.
bool AddLength(const ReplicaKind& kind, absl::Span<const double> counts, int length, SamplesOfKind* sums) {
  const double count = counts[length];
  if (count <= 0) return true;
  const SampleEstimate& sample = kind.of_length[length];
  if (!sample.fits) return false;
  const BusiestTime time = SplitBusiest(kind, sample);
  sums->samples += count;
  sums->sum.once_ns += count * time.once_ns;
  sums->sum.work_ns += count * time.work_ns;
  sums->busiest_ns += count * sample.busiest_ns;
  sums->path_ns += count * sample.path_ns;
  sums->longest_ns = std::max(sums->longest_ns, sample.path_ns);
  return true;
}

// When replicas of a kind end, by range of lengths and portions: looked up again and again.
class Ends {
 public:
  Ends(const ReplicaKind& kind, absl::Span<const double> counts, const RankSteps& steps)
      : lengths_(static_cast<int>(counts.size())),
        portions_(steps.steps() / steps.StepsOfPortion(kind)),
        ends_(static_cast<size_t>(lengths_) * (lengths_ + 1) * (portions_ + 1), kNoEnd) {
    for (int first = 0; first < lengths_; ++first) Fill(kind, counts, first, steps.ReplicasOfPortion(kind));
  }

  int portions() const { return portions_; }
  double Of(int first, int last, int portions) const { return ends_[At(first, last, portions)]; }

 private:
  size_t At(int first, int last, int portions) const {
    return (static_cast<size_t>(first) * (lengths_ + 1) + last) * (portions_ + 1) + portions;
  }

  void Fill(const ReplicaKind& kind, absl::Span<const double> counts, int first, int replicas) {
    SamplesOfKind sums;
    for (int last = first + 1; last <= lengths_; ++last) {
      if (!AddLength(kind, counts, last - 1, &sums)) return;
      for (int portions = 1; portions <= portions_; ++portions)
        ends_[At(first, last, portions)] = EndOf(kind, sums, portions * replicas);
    }
  }

  int lengths_;
  int portions_;
  std::vector<double> ends_;
};

// The best way to give the first so many lengths to so many meshes that have so many steps of ranks, and its
// last mesh.
struct Cell {
  double end_ns = kNoEnd;
  int kind = -1;
  int portions = 0;
  int first = 0;
};

class Programme {
 public:
  Programme(absl::Span<const ReplicaKind> kinds, absl::Span<const double> counts,
            const ProposalLimits& limits)
      : kinds_(kinds),
        lengths_(static_cast<int>(counts.size())),
        limits_(limits),
        steps_(limits.ranks),
        cells_(static_cast<size_t>(limits.meshes + 1) * (steps_.steps() + 1) * (lengths_ + 1)) {
    for (const ReplicaKind& kind : kinds) ends_.emplace_back(kind, counts, steps_);
    CellOf(0, 0, 0).end_ns = 0;
    for (int meshes = 1; meshes <= limits_.meshes; ++meshes) {
      for (int kind = 0; kind < static_cast<int>(kinds_.size()); ++kind) AddMesh(meshes, kind);
      // What ends no sooner than a strategy with fewer meshes is of no use to one with more.
      best_ns_ = std::min(best_ns_, CellOf(meshes, steps_.steps(), lengths_).end_ns);
    }
  }

  std::vector<ProposedStrategy> Result() {
    std::vector<ProposedStrategy> result;
    for (int meshes = 1; meshes <= limits_.meshes; ++meshes) {
      const double end = CellOf(meshes, steps_.steps(), lengths_).end_ns;
      // A part in a million is no gain.
      if (end == kNoEnd || (!result.empty() && end >= result.back().end_ns * (1 - 1e-6))) continue;
      result.push_back({.meshes = MeshesOf(meshes), .end_ns = end});
    }
    return result;
  }

 private:
  Cell& CellOf(int meshes, int steps, int lengths) {
    return cells_[(static_cast<size_t>(meshes) * (steps_.steps() + 1) + steps) * (lengths_ + 1) + lengths];
  }

  // Behind meshes that take shorter samples.
  void AddMesh(int meshes, int kind) {
    const int each = steps_.StepsOfPortion(kinds_[kind]);
    for (int portions = 1; portions <= ends_[kind].portions(); ++portions) {
      for (int before = 0; before + portions * each <= steps_.steps(); ++before)
        for (int first = 0; first < lengths_; ++first) Extend(meshes, kind, portions, before, first);
    }
  }

  void Extend(int meshes, int kind, int portions, int before, int first) {
    const double end_before = CellOf(meshes - 1, before, first).end_ns;
    if (end_before >= best_ns_) return;
    const int steps = before + portions * steps_.StepsOfPortion(kinds_[kind]);
    for (int last = first + 1; last <= lengths_; ++last) {
      const double end = std::max(end_before, ends_[kind].Of(first, last, portions));
      if (end >= best_ns_) return;
      Cell& cell = CellOf(meshes, steps, last);
      if (end < cell.end_ns) cell = {.end_ns = end, .kind = kind, .portions = portions, .first = first};
    }
  }

  std::vector<ProposedMesh> MeshesOf(int meshes) {
    std::vector<ProposedMesh> result;
    int steps = steps_.steps(), lengths = lengths_;
    for (int mesh = meshes; mesh > 0; --mesh) {
      const Cell& cell = CellOf(mesh, steps, lengths);
      const int replicas = cell.portions * steps_.ReplicasOfPortion(kinds_[cell.kind]);
      const auto same = std::ranges::find(result, cell.kind, &ProposedMesh::kind);
      if (same != result.end()) {
        same->replicas += replicas;
      } else {
        result.push_back({.kind = cell.kind, .replicas = replicas});
      }
      steps -= cell.portions * steps_.StepsOfPortion(kinds_[cell.kind]);
      lengths = cell.first;
    }
    return result;
  }

  const absl::Span<const ReplicaKind> kinds_;
  const int lengths_;
  const ProposalLimits limits_;
  const RankSteps steps_;
  std::vector<Ends> ends_;
  std::vector<Cell> cells_;
  double best_ns_ = kNoEnd;
};

// Whether as many of the ranks of `kind` may always be replicas of `other`.
bool StandsIn(const ReplicaKind& other, const ReplicaKind& kind) {
  if (kind.ranks % other.ranks != 0 || other.whole_ns > kind.whole_ns) return false;
  const double times = static_cast<double>(kind.ranks) / other.ranks;
  for (size_t length = 0; length < kind.of_length.size(); ++length) {
    const SampleEstimate &mine = kind.of_length[length], &theirs = other.of_length[length];
    if (!mine.fits) continue;
    if (!theirs.fits || theirs.path_ns > mine.path_ns) return false;
    if (theirs.path_ns - theirs.busiest_ns > mine.path_ns - mine.busiest_ns) return false;
    const BusiestTime my_time = SplitBusiest(kind, mine), their_time = SplitBusiest(other, theirs);
    if (their_time.work_ns > times * my_time.work_ns || their_time.once_ns > my_time.once_ns * times)
      return false;
  }
  return true;
}

}  // namespace

double EndOfReplicas(const ReplicaKind& kind, absl::Span<const double> counts, int first, int last,
                     int replicas) {
  SamplesOfKind sums;
  for (int length = first; length < last; ++length)
    if (!AddLength(kind, counts, length, &sums)) return kNoEnd;
  return EndOf(kind, sums, replicas);
}

double EndOfStrategy(absl::Span<const ReplicaKind> kinds, absl::Span<const double> counts,
                     absl::Span<const ProposedMesh> meshes) {
  const int lengths = static_cast<int>(counts.size());
  // By number of lengths that the meshes so far have.
  std::vector<double> ends(lengths + 1, kNoEnd);
  ends[0] = 0;
  for (size_t mesh = meshes.size(); mesh-- > 0;) {
    const ReplicaKind& kind = kinds[meshes[mesh].kind];
    std::vector<double> next(lengths + 1, kNoEnd);
    for (int first = 0; first <= lengths; ++first) {
      if (ends[first] == kNoEnd) continue;
      for (int last = first; last <= lengths; ++last) {
        const double end = EndOfReplicas(kind, counts, first, last, meshes[mesh].replicas);
        next[last] = std::min(next[last], std::max(ends[first], end));
      }
    }
    ends = std::move(next);
  }
  return ends[lengths];
}

std::vector<ProposedStrategy> ProposeStrategies(absl::Span<const ReplicaKind> kinds,
                                                absl::Span<const double> counts,
                                                const ProposalLimits& limits) {
  if (counts.empty() || limits.ranks < 1 || limits.meshes < 1) return {};
  return Programme(kinds, counts, limits).Result();
}

std::vector<int> KindsOfUse(absl::Span<const ReplicaKind> kinds) {
  std::vector<int> of_use;
  for (int i = 0; i < static_cast<int>(kinds.size()); ++i) {
    const bool stands_in =
        std::ranges::any_of(of_use, [&](int earlier) { return StandsIn(kinds[earlier], kinds[i]); });
    if (!stands_in) of_use.push_back(i);
  }
  return of_use;
}

}  // namespace penstock::core
