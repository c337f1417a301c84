// The best schedule of one small pipeline, found by trying them all: depth first over the passes that a rank
// could run next, with branch and bound.
//
// Shares nothing but plain types with the planner. Which schedules are tried: every order of passes on every
// rank, each pass as early as its order allows, but for those of which a better one is known without looking:
// where memory cannot bind, a pass never starts so late that another could have run before it for nothing
// ("active" schedules, Giffler and Thompson 1960, "Algorithms for solving production-scheduling problems");
// where it can, a rank may put any forward pass off. Bounds: brute_force_bound.h.
//
// An optimistic model, so that its optimum is never above that of the planner's: the transfers of a stage
// group wait for each other as on the fastest of its links, and buffers of transfers exist only while the
// pass runs that makes or uses them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"
#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

// A way to run the two passes of a micro-batch on a stage: bytes held between them against time.
struct PassChoice {
  int64_t backward_ns = 0;
  int64_t kept_bytes = 0;
  // What it is. Of the exact account, like `memory` below.
  StageRecompute recompute = {};
};

// Of one micro-batch on one stage.
struct SmallPass {
  int64_t forward_ns = 0;
  // Part of every choice's backward time.
  int64_t weight_ns = 0;
  // From cheap and large to expensive and small.
  std::vector<PassChoice> choices;
  // Above what is kept, while the pass runs.
  int64_t forward_bytes = 0;
  int64_t backward_bytes = 0;
  // Between the two parts of a split backward pass.
  int64_t put_aside_bytes = 0;
  // Part of what is kept, not of what is put aside; stays until the backward pass of the input has ended.
  int64_t received_bytes = 0;
  // To the next stage, and back; takes the link unless it is 0.
  int64_t transfer_ns = 0;
  // For so long: where several places of a group have links of their own, as long as the fastest one needs.
  int64_t link_ns = 0;
  StageMemory memory;
};

struct SmallPipeline {
  int stages = 0;
  int micro_batches = 0;
  int positions = 0;
  std::vector<int32_t> position_of_stage;
  // [micro_batch * stages + stage].
  std::vector<SmallPass> passes;
  // Of each rank, for micro-batches.
  std::vector<int64_t> available_bytes;
  // From the last backward pass of each stage to the end of its reduction of gradients.
  std::vector<int64_t> reduce_ns;
  bool split = false;

  const SmallPass& at(int micro_batch, int stage) const { return passes[micro_batch * stages + stage]; }
};

struct SmallSchedule {
  // False when the nodes ran out: a better one may exist.
  bool complete = true;
  // No schedule ends before the limit.
  bool found = false;
  // End of the last reduction of gradients.
  int64_t end_ns = 0;
  // In the order of decisions, and the choice of recompute for [micro_batch * stages + stage].
  std::vector<Pass> order;
  std::vector<uint8_t> choices;
  // One line for each pass, in the order of decisions.
  std::string text;
};

// The best schedule that ends before `limit_ns`, or (`any`) the first that is found. Every node visited is
// taken from `*nodes`.
SmallSchedule BestSchedule(const SmallPipeline& pipeline, int64_t limit_ns, bool any, int64_t* nodes);

// A bound on the end of the best schedule that needs no search.
int64_t LeastEnd(const SmallPipeline& pipeline);

// The best schedule "one forward, one backward" with the micro-batches in the given order, if memory allows
// it. One stage a rank. Returns the end of the last reduction of gradients.
int64_t OneForwardOneBackwardEnd(const SmallPipeline& pipeline, const std::vector<int>& order);

}  // namespace penstock::core
