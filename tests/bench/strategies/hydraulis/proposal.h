// Hydraulis' proposal: the mixes of schemes for lengths such as these, by a dynamic programme over ranks and
// lengths (Li et al. 2024, section 5.1).
//
// t[n][s] is the least time in which n ranks can do all samples of up to s tokens: groups of replicas of one
// scheme each take lengths that follow each other, and the longest group counts. A group of d replicas takes
// (sum of f(x) + (stages - 1) f(longest x)) / d. For every s the mix behind t[all ranks][s] is proposed.
// So a long sample seems to be divided over replicas; Grid.whole_samples mends that, which the paper does
// not.
//
//   std::vector<Mix> mixes = Propose(schemes, counts, {.ranks = 64, .longest = 32768});
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tests/bench/strategies/hydraulis/scheme.h"

namespace penstock::hydraulis {

struct LengthCount {
  int64_t tokens = 0;
  // Of a batch in the mean.
  double count = 0;
};

struct Grid {
  int ranks = 1;
  // A divisor of all ranks.
  int rank_step = 1;
  int64_t longest = 0;
  int64_t length_step = 1024;
  // A group takes no less than its longest sample does alone, on all stages.
  bool whole_samples = false;
};

// The least time of all ranks for samples of up to `grid.longest` tokens, nanoseconds; infinite where no mix
// can hold them. `counts`: by length, ascending.
double LeastNs(absl::Span<const Scheme> schemes, absl::Span<const LengthCount> counts, const Grid& grid);

// Each mix once: first that of one scheme alone which is fastest for all lengths, if there is any, then those
// for the shortest lengths and so on. Ranks that are left over get more replicas of schemes that a mix has.
std::vector<Mix> Propose(absl::Span<const Scheme> schemes, absl::Span<const LengthCount> counts,
                         const Grid& grid);

// Of each scheme alone, as many replicas as there is room for.
std::vector<Mix> OneSchemeEach(absl::Span<const Scheme> schemes, int ranks);

}  // namespace penstock::hydraulis
