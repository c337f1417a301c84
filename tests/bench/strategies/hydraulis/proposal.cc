#include "tests/bench/strategies/hydraulis/proposal.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace penstock::hydraulis {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// What a group of replicas takes for the samples of some lengths: those of (first, last] steps.
class Spans {
 public:
  Spans(const Scheme& scheme, absl::Span<const LengthCount> counts, int steps, const Grid& grid)
      : steps_(steps), ns_(static_cast<size_t>(steps + 1) * (steps + 1), kNever), alone_ns_(ns_.size(), 0) {
    const int64_t length_step = grid.length_step;
    for (int first = 0; first < steps; ++first) {
      double work = 0, longest = 0;
      size_t next = 0;
      while (next < counts.size() && counts[next].tokens <= first * length_step) ++next;
      for (int last = first + 1; last <= steps && last * length_step <= RoomOf(scheme, length_step); ++last) {
        for (; next < counts.size() && counts[next].tokens <= last * length_step; ++next) {
          if (counts[next].count <= 0) continue;
          longest = scheme.AloneNs(counts[next].tokens);
          work += counts[next].count * longest;
        }
        ns_[At(first, last)] = work + (scheme.pipeline - 1) * longest;
        if (grid.whole_samples) alone_ns_[At(first, last)] = scheme.pipeline * longest;
      }
    }
  }

  double Of(int first, int last, int replicas) const {
    return std::max(ns_[At(first, last)] / replicas, alone_ns_[At(first, last)]);
  }

 private:
  size_t At(int first, int last) const { return static_cast<size_t>(first) * (steps_ + 1) + last; }
  // In whole steps.
  static int64_t RoomOf(const Scheme& scheme, int64_t length_step) {
    return scheme.most_tokens / length_step * length_step;
  }

  int steps_;
  // Of one replica for all of them, and of the longest.
  std::vector<double> ns_;
  std::vector<double> alone_ns_;
};

// The best way for so many ranks and lengths, and its group for the longest of these.
struct Cell {
  double ns = kNever;
  // -1: none.
  int scheme = -1;
  int replicas = 0;
  // The cell that has the other groups.
  int rank_steps = 0;
  int length_steps = 0;
};

class Programme {
 public:
  Programme(absl::Span<const Scheme> schemes, absl::Span<const LengthCount> counts, const Grid& grid)
      : schemes_(schemes),
        grid_(grid),
        rank_steps_(grid.ranks / grid.rank_step),
        length_steps_(static_cast<int>((grid.longest + grid.length_step - 1) / grid.length_step)),
        cells_(static_cast<size_t>(rank_steps_ + 1) * (length_steps_ + 1)) {
    for (const Scheme& scheme : schemes) spans_.emplace_back(scheme, counts, length_steps_, grid);
    for (int ranks = 0; ranks <= rank_steps_; ++ranks) {
      CellOf(ranks, 0).ns = 0;
      if (ranks == 0) continue;
      for (int length = 1; length <= length_steps_; ++length) Fill(ranks, length);
    }
  }

  int length_steps() const { return length_steps_; }
  double LeastNs(int length) const { return CellOf(rank_steps_, length).ns; }

  Mix MixOf(int length) const {
    Mix mix;
    for (int ranks = rank_steps_; length > 0;) {
      const Cell& cell = CellOf(ranks, length);
      mix.push_back({cell.scheme, cell.replicas});
      ranks = cell.rank_steps;
      length = cell.length_steps;
    }
    return mix;
  }

  // Of the fewest replicas whose ranks are whole steps.
  int PortionOf(int scheme) const {
    return grid_.rank_step / std::gcd(grid_.rank_step, schemes_[scheme].ranks());
  }

 private:
  size_t At(int ranks, int length) const { return static_cast<size_t>(ranks) * (length_steps_ + 1) + length; }
  Cell& CellOf(int ranks, int length) { return cells_[At(ranks, length)]; }
  const Cell& CellOf(int ranks, int length) const { return cells_[At(ranks, length)]; }

  void Fill(int ranks, int length) {
    Cell& cell = CellOf(ranks, length);
    cell = CellOf(ranks - 1, length);
    for (int scheme = 0; scheme < static_cast<int>(schemes_.size()); ++scheme)
      for (int first = 0; first < length; ++first) AddGroup(scheme, ranks, first, length, &cell);
  }

  void AddGroup(int scheme, int ranks, int first, int last, Cell* cell) const {
    if (spans_[scheme].Of(first, last, 1) == kNever) return;
    const int portion = PortionOf(scheme), each = portion * schemes_[scheme].ranks() / grid_.rank_step;
    for (int portions = 1; portions * each <= ranks; ++portions) {
      // The more replicas the group has, the longer the others take.
      const double others = CellOf(ranks - portions * each, first).ns;
      if (others >= cell->ns) return;
      const int replicas = portions * portion;
      const double own = spans_[scheme].Of(first, last, replicas), ns = std::max(others, own);
      if (ns < cell->ns) *cell = {ns, scheme, replicas, ranks - portions * each, first};
      if (others >= own) return;
    }
  }

  const absl::Span<const Scheme> schemes_;
  const Grid grid_;
  const int rank_steps_;
  const int length_steps_;
  std::vector<Spans> spans_;
  std::vector<Cell> cells_;
};

// More replicas of the largest schemes that fit into what is left.
void FillUp(absl::Span<const Scheme> schemes, int ranks, Mix* mix) {
  for (const ReplicaGroup& group : *mix) ranks -= group.replicas * schemes[group.scheme].ranks();
  const auto largest_first = [&](const ReplicaGroup& a, const ReplicaGroup& b) {
    return schemes[a.scheme].ranks() > schemes[b.scheme].ranks();
  };
  std::ranges::stable_sort(*mix, largest_first);
  for (ReplicaGroup& group : *mix) {
    const int each = schemes[group.scheme].ranks();
    group.replicas += ranks / each;
    ranks %= each;
  }
}

// Each scheme once, the largest tensor groups first.
void Tidy(absl::Span<const Scheme> schemes, Mix* mix) {
  std::ranges::sort(*mix, [&](const ReplicaGroup& a, const ReplicaGroup& b) {
    const Scheme &first = schemes[a.scheme], &second = schemes[b.scheme];
    return std::pair(-first.tensor, a.scheme) < std::pair(-second.tensor, b.scheme);
  });
  Mix tidy;
  for (const ReplicaGroup& group : *mix) {
    if (!tidy.empty() && tidy.back().scheme == group.scheme) {
      tidy.back().replicas += group.replicas;
    } else {
      tidy.push_back(group);
    }
  }
  *mix = std::move(tidy);
}

// Empty where no scheme can hold all samples.
Mix BestOfOneScheme(absl::Span<const Scheme> schemes, absl::Span<const LengthCount> counts,
                    const Grid& grid) {
  Mix best;
  double least = kNever;
  const int steps = static_cast<int>((grid.longest + grid.length_step - 1) / grid.length_step);
  for (int scheme = 0; scheme < static_cast<int>(schemes.size()); ++scheme) {
    const int replicas = grid.ranks / schemes[scheme].ranks();
    if (replicas == 0) continue;
    const double ns = Spans(schemes[scheme], counts, steps, grid).Of(0, steps, replicas);
    if (ns >= least) continue;
    least = ns;
    best = {{scheme, replicas}};
  }
  return best;
}

}  // namespace

double LeastNs(absl::Span<const Scheme> schemes, absl::Span<const LengthCount> counts, const Grid& grid) {
  const Programme programme(schemes, counts, grid);
  return programme.LeastNs(programme.length_steps());
}

std::vector<Mix> Propose(absl::Span<const Scheme> schemes, absl::Span<const LengthCount> counts,
                         const Grid& grid) {
  std::vector<Mix> mixes;
  const auto add = [&](Mix mix) {
    FillUp(schemes, grid.ranks, &mix);
    Tidy(schemes, &mix);
    if (std::ranges::find(mixes, mix) == mixes.end()) mixes.push_back(std::move(mix));
  };
  Mix alone = BestOfOneScheme(schemes, counts, grid);
  if (!alone.empty()) add(std::move(alone));
  const Programme programme(schemes, counts, grid);
  for (int length = 1; length <= programme.length_steps(); ++length)
    if (programme.LeastNs(length) < kNever && programme.LeastNs(length) > 0) add(programme.MixOf(length));
  return mixes;
}

std::vector<Mix> OneSchemeEach(absl::Span<const Scheme> schemes, int ranks) {
  std::vector<Mix> mixes;
  for (int scheme = 0; scheme < static_cast<int>(schemes.size()); ++scheme)
    if (schemes[scheme].ranks() <= ranks) mixes.push_back({{scheme, ranks / schemes[scheme].ranks()}});
  return mixes;
}

}  // namespace penstock::hydraulis
