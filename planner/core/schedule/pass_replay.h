// The makespan of a replica whose passes run in a given order: several times faster than finding an order
// anew, for changes that leave a good order good.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/schedule/pass_clock.h"
#include "planner/core/schedule/pass_table.h"
#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

// Keeps its arrays between runs.
class PassReplay {
 public:
  PassReplay(absl::Span<const int32_t> position_of_stage, int ranks, StopToken stop = {});

  // `order`: passes of all ranks as ListScheduler ran them for as many micro-batches; each rank keeps its
  // order. End of the iteration (PassClock); kInfeasibleNs when memory does not suffice, the end is after
  // `give_up_ns`, or it is stopped.
  int64_t Run(const PassTable& table, absl::Span<const Pass> order, int64_t give_up_ns);

 private:
  struct RankState {
    int64_t free_ns = 0;
    int64_t used_bytes = 0;
    int64_t available_bytes = 0;
  };

  void Reset(const PassTable& table);
  // False when memory does not suffice.
  bool Forward(const PassTable& table, const Pass& pass);
  bool Backward(const PassTable& table, const Pass& pass);
  void Weight(const PassTable& table, const Pass& pass);

  std::vector<int32_t> position_of_stage_;
  std::vector<RankState> ranks_;
  PassClock clock_;
  StopToken stop_;
};

}  // namespace penstock::core
