#include "planner/core/verify/rank_time.h"

#include <algorithm>
#include <limits>

#include "planner/core/verify/timeline.h"

namespace penstock::core::verify {
namespace {

int64_t EndOf(const v1::Instruction& instruction) { return Timeline::EndOf(instruction); }

// Bytes of a damaged plan may be anything: sums end at the largest number.
int64_t Add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

int64_t Subtract(int64_t a, int64_t b) {
  int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return b < 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

// The wait of one rank before its passes.
class Waits {
 public:
  Waits(const PlanIndex& index, int rank, RankTime* time)
      : index_(index), rank_(rank), program_(index.program(rank)), time_(time) {
    in_use_ = program_.static_memory_bytes();
  }

  void Run() {
    FindNextForwards();
    for (const v1::Instruction& instruction : program_.instructions()) {
      if (IsPass(instruction.op())) SeePass(instruction);
      if (instruction.op() == v1::OP_OPTIMIZER_STEP) time_->busy_ns += instruction.expected_duration_ns();
      if (instruction.op() == v1::OP_WAIT && instruction.part() <= kWaitReceivedGradient)
        wait_ = &instruction;
      in_use_ =
          Subtract(Add(in_use_, instruction.memory_acquired_bytes()), instruction.memory_released_bytes());
    }
  }

  int64_t last_pass_ns() const { return last_pass_ns_; }

 private:
  // For each instruction the first FORWARD that is listed at or after it.
  void FindNextForwards() {
    next_forward_.resize(program_.instructions_size());
    const v1::Instruction* next = nullptr;
    for (int id = program_.instructions_size() - 1; id >= 0; --id) {
      if (program_.instructions(id).op() == v1::OP_FORWARD) next = &program_.instructions(id);
      next_forward_[id] = next;
    }
  }

  void SeePass(const v1::Instruction& pass) {
    if (!started_) {
      time_->fill_ns = pass.expected_start_ns();
    } else {
      Divide(last_pass_ns_, pass);
    }
    started_ = true;
    // Of a stage group of several ranks the slowest sets the pace.
    const int64_t own =
        index_.MeshOfRank(rank_).group_ranks() > 1 ? pass.own_duration_ns() : pass.expected_duration_ns();
    time_->busy_ns += own;
    time_->group_ns += pass.expected_duration_ns() - own;
    last_pass_ns_ = EndOf(pass);
    wait_ = nullptr;
  }

  // The time from `free` to the start of the pass.
  void Divide(int64_t free, const v1::Instruction& pass) {
    const int64_t start = pass.expected_start_ns();
    int64_t full = start;
    const v1::Instruction* forward = next_forward_[pass.id()];
    if (forward != nullptr && Need(*forward) > Subtract(program_.memory_limit_bytes(), in_use_))
      full = std::min(std::max(InputTime(*forward), free), start);
    const int64_t in_transfer = TransferTime(free, full);
    time_->memory_ns += start - full;
    time_->transfer_ns += in_transfer;
    time_->dependency_ns += full - free - in_transfer;
  }

  const v1::Instruction* Dep(uint32_t dep, const v1::Instruction& of) const {
    return dep < of.id() ? &program_.instructions(static_cast<int>(dep)) : nullptr;
  }

  int64_t InputTime(const v1::Instruction& forward) const {
    int64_t time = 0;
    for (const uint32_t dep : forward.deps()) {
      const v1::Instruction* input = Dep(dep, forward);
      if (input == nullptr || input->op() == v1::OP_LOAD) continue;
      if (input->op() == v1::OP_WAIT && input->transfer_id() < input->id())
        input = &program_.instructions(static_cast<int>(input->transfer_id()));
      time = std::max(time, EndOf(*input));
    }
    return time;
  }

  int64_t Need(const v1::Instruction& forward) const {
    int64_t need = forward.memory_acquired_bytes();
    for (const uint32_t dep : forward.deps()) {
      const v1::Instruction* input = Dep(dep, forward);
      if (input != nullptr && input->op() == v1::OP_LOAD) need = Add(need, input->memory_acquired_bytes());
    }
    for (const v1::Op op : {v1::OP_BACKWARD, v1::OP_BACKWARD_INPUT, v1::OP_BACKWARD_WEIGHT}) {
      const v1::Instruction* backward = index_.Find(rank_, op, forward.stage(), forward.micro_batch());
      if (backward != nullptr) need = Add(need, backward->memory_acquired_bytes());
    }
    return need;
  }

  // What [free, full) has in common with the way of the data that the last WAIT before the pass waits for.
  int64_t TransferTime(int64_t free, int64_t full) const {
    if (wait_ == nullptr || wait_->transfer_id() >= wait_->id()) return 0;
    const v1::Instruction& receive = program_.instructions(static_cast<int>(wait_->transfer_id()));
    if (receive.op() != v1::OP_RECV) return 0;
    const OtherEnd sender = FindOtherEnd(index_, rank_, receive);
    if (sender.instruction == nullptr) return 0;
    int64_t ready = 0;
    for (const uint32_t dep : sender.instruction->deps()) {
      if (dep < sender.instruction->id())
        ready = std::max(ready, EndOf(index_.program(sender.rank).instructions(static_cast<int>(dep))));
    }
    return std::max<int64_t>(0, std::min(full, EndOf(receive)) - std::max(free, ready));
  }

  const PlanIndex& index_;
  const int rank_;
  const v1::Program& program_;
  RankTime* time_;
  std::vector<const v1::Instruction*> next_forward_;
  int64_t in_use_ = 0;
  bool started_ = false;
  int64_t last_pass_ns_ = 0;
  // The last one for received data since the pass before.
  const v1::Instruction* wait_ = nullptr;
};

}  // namespace

std::vector<RankTime> ExplainTimes(const PlanIndex& index, int64_t makespan_ns) {
  std::vector<RankTime> times(index.ranks());
  std::vector<int64_t> last_pass(index.ranks());
  std::vector<int64_t> replica_end(index.replicas(), 0);
  int64_t end = 0;
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank) {
    Waits waits(index, rank, &times[rank]);
    waits.Run();
    last_pass[rank] = waits.last_pass_ns();
    int64_t& of_replica = replica_end[index.ReplicaOf(rank)];
    of_replica = std::max(of_replica, last_pass[rank]);
    end = std::max(end, of_replica);
  }
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank) {
    RankTime& time = times[rank];
    time.drain_ns = replica_end[index.ReplicaOf(rank)] - last_pass[rank];
    time.imbalance_ns = end - replica_end[index.ReplicaOf(rank)];
    // The reduction of gradients that nothing hides.
    time.transfer_ns += makespan_ns - time.busy_ns - time.fill_ns - time.drain_ns - time.dependency_ns -
                        time.transfer_ns - time.imbalance_ns - time.memory_ns - time.group_ns;
  }
  return times;
}

}  // namespace penstock::core::verify
