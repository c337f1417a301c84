// The passes of a replica as noise makes them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/schedule/pass_noise.h"
#include "planner/core/schedule/pass_table.h"
#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

// Keeps its arrays between draws.
class NoisyPasses {
 public:
  // `table` with the times of one draw; all else is shared with it. `order`: the passes that the replica
  // runs, which says whose backward pass is split; it has them all. Valid until the next call.
  const PassTable& Draw(const PassTable& table, absl::Span<const Pass> order, const PassNoise& noise,
                        int replica, int draw);

 private:
  PassTable noisy_;
  std::vector<int64_t> forward_ns_;
  std::vector<int64_t> backward_ns_;
  std::vector<int64_t> weight_ns_;
  // Of each stage.
  std::vector<NoiseStream> streams_;
};

}  // namespace penstock::core
