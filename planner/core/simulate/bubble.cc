#include "planner/core/simulate/bubble.h"

#include <algorithm>
#include <cstddef>

namespace penstock::core {
namespace {

// End of the last pass of each rank.
std::vector<int64_t> LastPassEnds(const ProgramSet& programs, const Simulator& simulator) {
  std::vector<int64_t> ends(programs.ranks(), 0);
  for (int rank = 0; rank < programs.ranks(); ++rank) {
    for (int32_t i = programs.rank_begin[rank]; i < programs.rank_begin[rank + 1]; ++i) {
      if (IsPass(programs.instructions[i].op)) ends[rank] = simulator.end_ns()[i];
    }
  }
  return ends;
}

// The length of what two spans of time have in common.
int64_t Common(int64_t begin, int64_t end, int64_t other_begin, int64_t other_end) {
  return std::max<int64_t>(0, std::min(end, other_end) - std::max(begin, other_begin));
}

// The walk through one rank's program.
class RankWalk {
 public:
  RankWalk(const ProgramSet& programs, const Simulator& simulator, int rank, int64_t memory_limit_bytes)
      : programs_(programs),
        simulator_(simulator),
        begin_(programs.rank_begin[rank]),
        end_(programs.rank_begin[rank + 1]),
        memory_limit_(memory_limit_bytes),
        in_use_(programs.static_bytes.empty() ? 0 : programs.static_bytes[rank]) {
    ListForwards();
  }

  RankTime Run() {
    for (int32_t i = begin_; i < end_; ++i) {
      const Instruction& instruction = programs_.instructions[i];
      if (IsPass(instruction.op)) AddPass(i);
      if (instruction.op == Op::kOptimizerStep) time_.busy_ns += instruction.duration_ns;
      if (instruction.op == Op::kWait) SeeWait(instruction);
      in_use_ += instruction.acquired_bytes - instruction.released_bytes;
    }
    return time_;
  }

 private:
  struct Forward {
    int32_t position = 0;
    // When its input is there, and what it and its way back take.
    int64_t input_ns = 0;
    int64_t bytes = 0;
  };

  void ListForwards();
  // Adds what the input of a FORWARD takes, and when it is there.
  void SeeInput(const Instruction& instruction, Forward* forward) const;
  void SeeWait(const Instruction& wait);
  void AddPass(int32_t position);
  void AddGap(int64_t start_ns);
  // When the data of a received transfer was ready at its sender: the end of the pass that made it.
  int64_t DataReady(const Transfer& transfer) const;

  const ProgramSet& programs_;
  const Simulator& simulator_;
  const int32_t begin_;
  const int32_t end_;
  const int64_t memory_limit_;
  int64_t in_use_;
  std::vector<Forward> forwards_;
  // The first of `forwards_` that has not run.
  size_t next_forward_ = 0;
  RankTime time_;
  bool started_ = false;
  int64_t free_ns_ = 0;
  // Of the transfer that the next pass waits for.
  int64_t data_ready_ns_ = 0;
  int64_t arrival_ns_ = 0;
};

void RankWalk::ListForwards() {
  int32_t stages = 0;
  int32_t micro_batches = 0;
  for (int32_t i = begin_; i < end_; ++i) {
    stages = std::max(stages, programs_.instructions[i].stage + 1);
    micro_batches = std::max(micro_batches, programs_.instructions[i].micro_batch + 1);
  }
  // Index in `forwards_` by [stage * micro_batches + micro_batch].
  std::vector<int32_t> index(static_cast<size_t>(stages) * micro_batches, -1);
  for (int32_t i = begin_; i < end_; ++i) {
    const Instruction& instruction = programs_.instructions[i];
    int32_t& slot = index[static_cast<size_t>(instruction.stage) * micro_batches + instruction.micro_batch];
    if (instruction.op == Op::kForward) {
      slot = static_cast<int32_t>(forwards_.size());
      Forward forward{i, 0, instruction.acquired_bytes};
      SeeInput(instruction, &forward);
      forwards_.push_back(forward);
    } else if (slot >= 0 && IsPass(instruction.op)) {
      forwards_[slot].bytes += instruction.acquired_bytes;
    }
  }
}

void RankWalk::SeeInput(const Instruction& instruction, Forward* forward) const {
  for (int32_t dep = instruction.deps_begin; dep < instruction.deps_end; ++dep) {
    const int32_t position = begin_ + programs_.deps[dep];
    const Instruction& input = programs_.instructions[position];
    if (input.op == Op::kLoad) forward->bytes += input.acquired_bytes;
    if (input.op == Op::kLoad) continue;
    const int32_t made = input.op == Op::kWait ? begin_ + input.waits_for : position;
    forward->input_ns = std::max(forward->input_ns, simulator_.end_ns()[made]);
  }
}

int64_t RankWalk::DataReady(const Transfer& transfer) const {
  const Instruction& send = programs_.instructions[transfer.send];
  int64_t ready = 0;
  for (int32_t dep = send.deps_begin; dep < send.deps_end; ++dep) {
    ready =
        std::max(ready, simulator_.end_ns()[programs_.rank_begin[transfer.from_rank] + programs_.deps[dep]]);
  }
  return ready;
}

void RankWalk::SeeWait(const Instruction& wait) {
  if (wait.part != kReceivedActivation && wait.part != kReceivedGradient) return;
  const int32_t receive = begin_ + wait.waits_for;
  arrival_ns_ = simulator_.end_ns()[receive];
  data_ready_ns_ = DataReady(programs_.transfers[programs_.instructions[receive].joint]);
}

void RankWalk::AddGap(int64_t start_ns) {
  // From here on the rank waits for memory.
  int64_t full_ns = start_ns;
  if (next_forward_ < forwards_.size()) {
    const Forward& forward = forwards_[next_forward_];
    if (forward.bytes > memory_limit_ - in_use_) {
      full_ns = std::clamp(forward.input_ns, free_ns_, start_ns);
    }
  }
  const int64_t in_transfer = Common(free_ns_, full_ns, data_ready_ns_, arrival_ns_);
  time_.memory_ns += start_ns - full_ns;
  time_.transfer_ns += in_transfer;
  time_.dependency_ns += full_ns - free_ns_ - in_transfer;
}

void RankWalk::AddPass(int32_t position) {
  const int64_t start = simulator_.start_ns()[position];
  const int64_t end = simulator_.end_ns()[position];
  if (started_) {
    AddGap(start);
  } else {
    time_.fill_ns = start;
    started_ = true;
  }
  const Instruction& pass = programs_.instructions[position];
  const int64_t own = pass.joint >= 0 ? pass.own_ns : end - start;
  time_.busy_ns += own;
  time_.group_ns += end - start - own;
  free_ns_ = end;
  arrival_ns_ = 0;
  data_ready_ns_ = 0;
  if (programs_.instructions[position].op == Op::kForward) ++next_forward_;
}

}  // namespace

std::vector<RankTime> ExplainTime(const ProgramSet& programs, const Simulator& simulator,
                                  const Topology& topology, const MemoryLimits& memory_limits,
                                  StopToken stop) {
  const int ranks = programs.ranks();
  const std::vector<int64_t> last = LastPassEnds(programs, simulator);
  const int64_t all_end = ranks == 0 ? 0 : *std::max_element(last.begin(), last.end());
  std::vector<RankTime> times;
  for (int rank = 0; rank < ranks; ++rank) {
    if (stop.stopped()) {
      times.emplace_back();
      continue;
    }
    int64_t replica_end = 0;
    for (const int32_t other : topology.PipelineGroup(topology.PlaceOf(rank).replica)) {
      replica_end = std::max(replica_end, last[other]);
    }
    RankTime time = RankWalk(programs, simulator, rank, memory_limits.Of(rank)).Run();
    time.drain_ns = replica_end - last[rank];
    time.imbalance_ns = all_end - replica_end;
    // What is left is the reduction of gradients that nothing hides.
    time.transfer_ns += simulator.makespan_ns() - time.busy_ns - time.fill_ns - time.drain_ns -
                        time.dependency_ns - time.memory_ns - time.transfer_ns - time.imbalance_ns -
                        time.group_ns;
    times.push_back(time);
  }
  return times;
}

int64_t LastPassEnd(const ProgramSet& programs, const Simulator& simulator) {
  int64_t end = 0;
  for (size_t i = 0; i < programs.instructions.size(); ++i) {
    if (IsPass(programs.instructions[i].op)) end = std::max(end, simulator.end_ns()[i]);
  }
  return end;
}

}  // namespace penstock::core
