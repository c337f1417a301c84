// Schedules the passes of one replica as they become ready: the fast judge that searches call thousands of
// times, and the source of the order that is planned.
//
// An event-driven list schedule. Whenever a rank is free it takes, among the passes whose data has arrived, a
// backward pass before a forward pass (what drains the pipeline frees memory), and a weight gradient only
// where it would wait otherwise (zero bubble: Qi et al. 2023, "Zero Bubble Pipeline Parallelism"; there the
// passes are alike and placed by hand or by an integer programme, here every one has its own time and the
// rank looks at what is on its way to it). Forward passes start only where memory allows. The first stage has
// nobody waiting for its input gradients: what feeds other stages of its rank goes first.
//
// Exact for the model of execution but for one thing: of two transfers that want a link in opposite
// directions, the one whose pass began first goes first, not the one that is ready first (PipelineTimeline
// has that).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/schedule/pass_clock.h"
#include "planner/core/schedule/pass_table.h"
#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

// How a replica's passes are chosen. Searches change it.
struct ScheduleRules {
  // Strictly alternating after the warm-up, instead of whatever is ready.
  bool one_forward_one_backward = false;
  // For each stage: most micro-batches between their forward and backward pass.
  std::vector<int32_t> ahead;
  // Micro-batches in the order of their backward passes, the same on every stage; empty: as they entered.
  std::vector<int32_t> backward_order;
  // For each stage: whether backward passes are split there.
  std::vector<char> split;
  // For each rank: whether a forward pass goes before a backward pass when both are there.
  std::vector<char> forward_first;
  // For each rank: whether a weight gradient may run although it delays a pass that is already on its way.
  std::vector<char> eager_weights;
};

// Keeps its arrays between runs.
class ListScheduler {
 public:
  // `position_of_stage`: its position in the pipeline for each stage.
  ListScheduler(absl::Span<const int32_t> position_of_stage, int ranks, StopToken stop = {});

  // End of the iteration (PassClock); kInfeasibleNs when memory never suffices for the next pass, or as
  // soon as the end is known to be after `give_up_ns`, or it is stopped. `order`, if not null, gets the
  // passes of all ranks as they began, or none.
  int64_t Run(const PassTable& table, const ScheduleRules& rules, int64_t give_up_ns = kInfeasibleNs,
              std::vector<Pass>* order = nullptr);

  // Passes of the last run.
  int64_t passes() const { return passes_run_; }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  struct StageState {
    int32_t forwards = 0;
    int32_t backwards = 0;
    // Of activations that were sent to the stage and that it has not run.
    int64_t queued_bytes = 0;
    int64_t most_held_bytes = 0;
  };
  struct Weight {
    int32_t stage = 0;
    int32_t micro_batch = 0;
    int64_t time_ns = 0;
  };
  struct RankState {
    int64_t free_ns = 0;
    // Of the passes that it has not run.
    int64_t left_ns = 0;
    int64_t used_bytes = 0;
    int64_t passing_bytes = 0;
    // A forward pass here waits for memory of the rank that it sends to.
    bool waits_for_receiver = false;
    // Put aside and not yet run; count of them in weights_.
    int32_t weights = 0;
  };
  // What a rank could run next.
  struct Choice {
    // Stage, or -1.
    int32_t forward = -1;
    int32_t backward = -1;
    // When the next pass that is on its way arrives.
    int64_t next_arrival_ns = kNever;
    // A pass is there, but its bytes are not.
    bool short_of_memory = false;
    // A forward pass could run here, but what it sends has no room.
    bool receiver_is_full = false;
  };

  void Reset(const PassTable& table);
  // Whether the rank of the next stage can take one more activation now. What waits there must leave room for
  // the largest micro-batch, or the stage could never run again.
  bool ReceiverHasRoom(const PassTable& table, int stage) const;
  bool FitsForward(const PassTable& table, const ScheduleRules& rules, int stage) const;
  bool FitsBackward(const PassTable& table, int stage, int32_t micro_batch) const;
  bool FitsSplit(const PassTable& table, const ScheduleRules& rules, int stage) const;
  // A stage's micro-batches between their forward and backward pass: the first `entered` have run their
  // forward pass, and the backward passes before the `begin`th have been run.
  struct InFlight {
    int32_t begin = 0;
    int32_t entered = 0;
  };
  // Whether a rank that holds `bytes` can run the backward passes of all in flight, one micro-batch after the
  // other, each on the last stage first. `changed_stage` has `changed` in flight, the others what they have.
  bool BackwardsFit(const PassTable& table, const ScheduleRules& rules, int rank, int64_t bytes,
                    int changed_stage, InFlight changed) const;
  // Lets ranks that wait for memory of this one look again.
  void WakeSenders(int rank, int64_t time_ns);
  Choice Choose(const PassTable& table, const ScheduleRules& rules, int rank, int64_t now) const;
  void LookAtStage(const PassTable& table, const ScheduleRules& rules, int stage, int64_t now,
                   Choice* choice) const;
  // Runs one pass of the rank, or finds that it must wait.
  void Step(const PassTable& table, const ScheduleRules& rules, int rank);
  void RunForward(const PassTable& table, int stage, int64_t now);
  void RunBackward(const PassTable& table, const ScheduleRules& rules, int stage, int64_t now);
  // The weight gradient that suits a gap; -1 when waiting is better.
  int PickWeight(int rank, int64_t gap_ns, bool any) const;
  void RunWeight(const PassTable& table, int rank, int index, int64_t now);
  void Wake(int rank, int64_t time_ns);
  static int32_t NextBackward(const ScheduleRules& rules, int32_t backwards) {
    return rules.backward_order.empty() ? backwards : rules.backward_order[backwards];
  }
  void Record(PassKind kind, int stage, int micro_batch);

  std::vector<int32_t> position_of_stage_;
  // Stages of rank r: stages_of_rank_[rank_begin_[r] .. rank_begin_[r + 1]), the last stage first.
  std::vector<int32_t> rank_begin_;
  std::vector<int32_t> stages_of_rank_;
  std::vector<StageState> stages_;
  std::vector<RankState> ranks_;
  // For each rank: when it may be able to start something; kNever until something happens elsewhere.
  std::vector<int64_t> wake_ns_;
  // [rank * capacity + i].
  std::vector<Weight> weights_;
  size_t weight_capacity_ = 0;
  PassClock clock_;
  StopToken stop_;
  int64_t left_ = 0;
  int64_t passes_run_ = 0;
  // Null: nobody wants it.
  std::vector<Pass>* order_ = nullptr;
};

// What each rank runs of an order of all.
RankPasses ByRank(absl::Span<const Pass> order, absl::Span<const int32_t> position_of_stage, int ranks);

}  // namespace penstock::core
