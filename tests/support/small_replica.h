// A replica with arrays of its own, for tests and benchmarks of schedules.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/schedule/list_scheduler.h"
#include "planner/core/schedule/pass_replay.h"

namespace penstock::core {

// Times and bytes are [micro_batch * stages + stage]. Without weight gradients, transfers, bytes or
// reductions until a test sets them, and with rules that split nothing.
class SmallReplica {
 public:
  SmallReplica(std::vector<int32_t> position_of_stage, int ranks, int micro_batches)
      : rank_of_stage_(std::move(position_of_stage)), ranks_(ranks), micro_batches_(micro_batches) {
    const size_t size = static_cast<size_t>(micro_batches) * stages();
    for (auto* figures :
         {&forward, &backward, &weight, &transfer, &input, &held, &put_aside, &forward_passing, &passing}) {
      figures->assign(size, 0);
    }
    available.assign(ranks, INT64_C(1) << 40);
    reduce.assign(stages(), 0);
    optimizer.assign(ranks, 0);
    rules.ahead.assign(stages(), micro_batches);
    rules.split.assign(stages(), 0);
    for (auto* flags : {&rules.forward_first, &rules.eager_weights}) flags->assign(ranks, 0);
  }

  int stages() const { return static_cast<int>(rank_of_stage_.size()); }

  int64_t Schedule(int64_t give_up_ns = kInfeasibleNs) {
    return ListScheduler(rank_of_stage_, ranks_).Run(Table(), rules, give_up_ns, &order);
  }
  int64_t Replay(int64_t give_up_ns = kInfeasibleNs) {
    return PassReplay(rank_of_stage_, ranks_).Run(Table(), order, give_up_ns);
  }
  // "F0 F1 B0" of one rank, with the kinds F, B, I (input gradient) and W.
  std::string Names(int rank) const {
    std::string names;
    for (const Pass& pass : order) {
      if (rank_of_stage_[pass.stage] != rank) continue;
      absl::StrAppend(&names, names.empty() ? "" : " ", std::string(1, "FBIW"[static_cast<int>(pass.kind)]),
                      pass.micro_batch);
    }
    return names;
  }

  std::vector<int64_t> forward, backward, weight, transfer, input, held, put_aside, forward_passing, passing;
  std::vector<int64_t> available, reduce, optimizer;
  ScheduleRules rules;
  std::vector<Pass> order;

  // Of the arrays as they are; lives as long as they.
  PassTable Table() {
    rows_.clear();
    for (int m = 0; m < micro_batches_; ++m) rows_.push_back(m * stages());
    transfers_.assign(stages(), transfer.data());
    PassTable table;
    table.stages = stages();
    table.positions = ranks_;
    table.rows = rows_;
    table.forward_ns = forward.data();
    table.backward_ns = backward.data();
    table.weight_ns = weight.data();
    table.transfer_ns = transfers_.data();
    table.gradient_transfer_ns = transfers_.data();
    table.input_bytes = input.data();
    table.held_bytes = held.data();
    table.put_aside_bytes = put_aside.data();
    table.forward_passing_bytes = forward_passing.data();
    table.passing_bytes = passing.data();
    table.available_bytes = available.data();
    table.reduce_ns = reduce.data();
    table.optimizer_ns = optimizer.data();
    return table;
  }

 private:
  std::vector<int32_t> rank_of_stage_;
  int ranks_;
  int micro_batches_;
  std::vector<int32_t> rows_;
  std::vector<const int64_t*> transfers_;
};

}  // namespace penstock::core
