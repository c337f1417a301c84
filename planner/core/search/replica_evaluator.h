// The makespan of one replica whose micro-batches, order and rules are given.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/schedule/list_scheduler.h"
#include "planner/core/schedule/noisy_passes.h"
#include "planner/core/schedule/pass_noise.h"
#include "planner/core/schedule/pass_replay.h"
#include "planner/core/search/micro_batch_table.h"
#include "planner/core/search/schedule_space.h"

namespace penstock::core {

// Keeps its arrays between calls. Counts the work that it does.
class ReplicaEvaluator {
 public:
  explicit ReplicaEvaluator(const ScheduleSpace& space);

  // End of the iteration (PassClock); kInfeasibleNs when memory is short, a shape is outside of the
  // profile, the end is after `give_up_ns`, or the space is stopped. `slots`: in the order in which they
  // enter the pipeline, updated with the levels of `rules`. `replica` decides the speed of its links.
  // `order`, if not null, gets the passes as they ran.
  int64_t Makespan(const MicroBatchTable& table, absl::Span<const int32_t> slots, const ScheduleRules& rules,
                   int replica, int64_t give_up_ns = kInfeasibleNs, std::vector<Pass>* order = nullptr);

  // The same with passes in a given order, of as many micro-batches.
  int64_t Replay(const MicroBatchTable& table, absl::Span<const int32_t> slots, absl::Span<const Pass> order,
                 int replica, int64_t give_up_ns = kInfeasibleNs);

  // The same in each draw of `noise`, from 0 on: as many as `makespans` has. What fits in memory does so
  // whatever passes take, for ranks keep their order; kInfeasibleNs where it does not.
  void ReplayUnderNoise(const MicroBatchTable& table, absl::Span<const int32_t> slots,
                        absl::Span<const Pass> order, int replica, const PassNoise& noise,
                        absl::Span<int64_t> makespans);

  // The order in which passes would run if they took what they take in a draw: `scheduled`, empty where
  // memory is short. `order`: any order of theirs.
  void ScheduleUnderNoise(const MicroBatchTable& table, absl::Span<const int32_t> slots,
                          const ScheduleRules& rules, absl::Span<const Pass> order, int replica,
                          const PassNoise& noise, int draw, std::vector<Pass>* scheduled);

  // Everything that programs are made of. In the given order if memory suffices for it, else in a new one.
  // False when the replica cannot run, or the space is stopped.
  bool MakePipeline(const MicroBatchTable& table, absl::Span<const int32_t> slots, const ScheduleRules& rules,
                    absl::Span<const Pass> order, int replica, ReplicaPipeline* pipeline);

  const ScheduleSpace& space() const { return space_; }
  // Work done so far, in passes of a list schedule.
  int64_t simulated() const { return simulated_; }

 private:
  // By how much transfers are slowed down; 1: they are not.
  struct LinkSlowness {
    double activations = 1;
    double gradients = 1;
  };

  // By stage; empty: none is slow.
  static std::vector<LinkSlowness> LinksOf(const ScheduleSpace& space, int replica);
  bool Gather(const MicroBatchTable& table, absl::Span<const int32_t> slots, int replica);
  // Of transfers between a stage and the next one.
  MicroBatchTable::Field TransferField(int replica, int stage) const;
  // Whether it has slow groups, or slow links between stages.
  bool IsSlow(int replica) const;
  // Fills slowed_ and its rows: the figures of the slots as they are on the slow groups and links of the
  // replica.
  void SlowDown(const MicroBatchTable& table, absl::Span<const int32_t> slots, int replica);

  const ScheduleSpace& space_;
  ListScheduler scheduler_;
  PassReplay replay_;
  NoisyPasses noisy_;
  PassTable passes_;
  // By replica and stage, of its links with the next one.
  std::vector<std::vector<LinkSlowness>> link_slowness_;
  std::vector<int32_t> rows_;
  // [micro-batch][field][stage], as in the table, and one more field: transfers of gradients.
  std::vector<int64_t> slowed_;
  std::vector<const int64_t*> transfer_ns_;
  std::vector<const int64_t*> gradient_transfer_ns_;
  int64_t simulated_ = 0;
};

}  // namespace penstock::core
