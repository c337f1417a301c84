// What the page shows of an iteration, as JSON: the timeline of its ranks, planned and measured, the load of
// its replicas and the lengths of its samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "planner/service/engine/iteration_values.h"

namespace penstock {

struct IterationViewOptions {
  // Ranks of this replica alone; nothing: of all.
  std::optional<uint32_t> replica = {};
  // Ranks beyond so many blocks are left out, and counted in "ranks_left_out". One rank is always there.
  size_t most_blocks = 30000;
};

// Times are microseconds from the earliest start of a rank; plan and measurement both begin at 0. Of a rank
// "blocks" are what it computes and reduces, five numbers each: op, micro-batch, stage, start and duration as
// planned; "measured" has two for each block in the same order, start and duration, and -1, -1 where it is
// not known. Ranks that have not reported have no "measured".
// `plan`: that of the iteration, unpacked.
nlohmann::ordered_json IterationAsJson(const HeldIteration& iteration, const v1::Plan& plan,
                                       const IterationViewOptions& options);

}  // namespace penstock
