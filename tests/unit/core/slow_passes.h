// Forward passes of ranks of which one is slow.
#pragma once

#include <vector>

#include "planner/core/calibrate/foretold_pass.h"
#include "planner/core/calibrate/measured_pass.h"

namespace penstock::core {

// So many of each of `ranks` ranks, of one row of 100 tokens, 101, ...; those of `slow` take `factor` times
// what `costs` say, all others take that.
inline std::vector<MeasuredPass> PassesWithSlowRank(const CostModel& costs, int ranks, int of_each, int slow,
                                                    double factor) {
  std::vector<MeasuredPass> passes;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int tokens = 100; tokens < 100 + of_each; ++tokens) {
      MeasuredPass pass;
      pass.rank = rank;
      pass.sums.rows = 1;
      pass.sums.target = tokens;
      pass.sums.target_square = tokens * tokens;
      pass.duration_ns = (rank == slow ? factor : 1) * ForetoldNs(costs, pass);
      passes.push_back(pass);
    }
  }
  return passes;
}

}  // namespace penstock::core
