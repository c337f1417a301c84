#include "tests/unit/verify/plan_sealing.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/hash/sha256.h"

namespace penstock::core {
namespace {

int64_t EndOf(const v1::Instruction& instruction) {
  return instruction.expected_start_ns() + instruction.expected_duration_ns();
}

// When everything starts: from an empty machine on, nothing starts before what it waits for has ended, and
// whatever starts too early is put off until nothing does.
class Clock {
 public:
  explicit Clock(v1::Plan* plan) : plan_(*plan) {}

  void Run() {
    for (v1::Program& program : *plan_.mutable_programs())
      for (v1::Instruction& instruction : *program.mutable_instructions()) {
        instruction.set_expected_start_ns(0);
        instruction.set_expected_duration_ns(Duration(instruction.op()));
        if (IsJointPass(instruction)) instruction.set_own_duration_ns(OwnDuration(program, instruction));
      }
    for (bool changed = true; changed;) {
      changed = false;
      for (v1::Program& program : *plan_.mutable_programs())
        for (v1::Instruction& instruction : *program.mutable_instructions())
          changed |= PutOff(Ready(program, instruction), &instruction);
      for (auto& [key, together] : Meetings()) {
        int64_t start = 0;
        for (const v1::Instruction* one : together) start = std::max(start, one->expected_start_ns());
        for (v1::Instruction* one : together) changed |= PutOff(start, one);
      }
    }
  }

 private:
  static bool IsJointPass(const v1::Instruction& instruction) {
    return instruction.has_collective() && instruction.op() != v1::OP_REDUCE_GRADIENTS &&
           instruction.op() != v1::OP_OPTIMIZER_STEP;
  }

  // The first rank of a stage group is its slowest.
  int64_t OwnDuration(const v1::Program& program, const v1::Instruction& pass) const {
    const auto& ranks = plan_.groups(pass.collective().group()).ranks();
    const auto place = std::find(ranks.begin(), ranks.end(), program.rank()) - ranks.begin();
    return pass.expected_duration_ns() - 7 * place;
  }

  static int64_t Duration(v1::Op op) {
    if (op == v1::OP_FORWARD || op == v1::OP_BACKWARD_INPUT || op == v1::OP_BACKWARD_WEIGHT) return 100;
    if (op == v1::OP_BACKWARD) return 200;
    if (op == v1::OP_SEND || op == v1::OP_RECV) return 30;
    if (op == v1::OP_REDUCE_GRADIENTS) return 50;
    return op == v1::OP_OPTIMIZER_STEP ? 20 : 0;
  }

  static bool PutOff(int64_t start, v1::Instruction* instruction) {
    if (instruction->expected_start_ns() >= start) return false;
    instruction->set_expected_start_ns(start);
    return true;
  }

  static int64_t Ready(const v1::Program& program, const v1::Instruction& instruction) {
    int64_t ready = 0;
    for (const v1::Instruction& other : program.instructions()) {
      if (other.id() >= instruction.id()) break;
      const auto& deps = instruction.deps();
      if (other.stream() == instruction.stream() || std::count(deps.begin(), deps.end(), other.id()) > 0)
        ready = std::max(ready, EndOf(other));
    }
    return ready;
  }

  // Both ends of each transfer, and all ranks of each collective.
  std::map<std::string, std::vector<v1::Instruction*>> Meetings() {
    std::map<std::string, std::vector<v1::Instruction*>> meetings;
    for (v1::Program& program : *plan_.mutable_programs())
      for (v1::Instruction& instruction : *program.mutable_instructions()) {
        if (instruction.has_transfer())
          meetings["transfer " + std::to_string(program.replica()) + " " + PlaceOf(program) + " " +
                   std::to_string(instruction.transfer().order())]
              .push_back(&instruction);
        if (instruction.has_collective())
          meetings["group " + std::to_string(instruction.collective().group()) + " " +
                   std::to_string(instruction.collective().sequence())]
              .push_back(&instruction);
      }
    return meetings;
  }

  // Equal places of two stage groups meet.
  std::string PlaceOf(const v1::Program& program) const {
    const auto& ranks = plan_.topology().replicas(program.replica()).stages(program.stages(0)).ranks();
    return std::to_string(std::find(ranks.begin(), ranks.end(), program.rank()) - ranks.begin());
  }

  v1::Plan& plan_;
};

// The predictions of a plan whose instructions have their times.
class Predictions {
 public:
  explicit Predictions(v1::Plan* plan) : plan_(*plan), predicted_(*plan->mutable_predicted()) {}

  void Set() {
    predicted_.Clear();
    std::vector<int64_t> replica_end(plan_.replicas_size(), 0);
    int64_t makespan = 0;
    for (const v1::Program& program : plan_.programs())
      for (const v1::Instruction& instruction : program.instructions()) {
        makespan = std::max(makespan, EndOf(instruction));
        int64_t& end = replica_end[program.replica()];
        if (IsPass(instruction)) end = std::max(end, EndOf(instruction));
      }
    predicted_.set_makespan_ns(makespan);
    predicted_.set_last_backward_ns(*std::max_element(replica_end.begin(), replica_end.end()));
    for (const v1::Program& program : plan_.programs()) SetRank(program, replica_end[program.replica()]);
  }

 private:
  static bool IsPass(const v1::Instruction& instruction) {
    return instruction.op() == v1::OP_FORWARD || instruction.op() == v1::OP_BACKWARD ||
           instruction.op() == v1::OP_BACKWARD_INPUT || instruction.op() == v1::OP_BACKWARD_WEIGHT;
  }

  void SetRank(const v1::Program& program, int64_t replica_end) {
    v1::RankPrediction& rank = *predicted_.add_ranks();
    v1::Bubble& bubble = *rank.mutable_bubble();
    int64_t busy = 0, last = 0, in_use = program.static_memory_bytes(), peak = 0;
    int64_t dependency = 0, memory = 0, group = 0;
    const v1::Instruction* before = nullptr;
    const v1::Instruction* wait = nullptr;
    for (const v1::Instruction& instruction : program.instructions()) {
      if (instruction.op() == v1::OP_WAIT && instruction.part() < 2) wait = &instruction;
      if (IsPass(instruction)) {
        if (before == nullptr) bubble.set_fill_ns(instruction.expected_start_ns());
        if (before != nullptr) {
          const int64_t free = EndOf(*before), start = instruction.expected_start_ns();
          const int64_t full = FullFrom(program, instruction, free, in_use);
          const int64_t moving = wait == nullptr ? 0 : Moving(program, *wait, free, full);
          memory += start - full;
          dependency += full - free - moving;
        }
        before = &instruction;
        wait = nullptr;
        last = EndOf(instruction);
      }
      if (instruction.op() == v1::OP_OPTIMIZER_STEP) busy += instruction.expected_duration_ns();
      if (IsPass(instruction)) {
        const int64_t own =
            instruction.has_collective() ? instruction.own_duration_ns() : instruction.expected_duration_ns();
        busy += own;
        group += instruction.expected_duration_ns() - own;
      }
      in_use += instruction.memory_acquired_bytes();
      if (in_use > peak) {
        peak = in_use;
        rank.set_peak_instruction(instruction.id());
      }
      in_use -= instruction.memory_released_bytes();
    }
    rank.set_busy_ns(busy);
    rank.set_peak_memory_bytes(peak);
    bubble.set_drain_ns(replica_end - last);
    bubble.set_imbalance_ns(predicted_.last_backward_ns() - replica_end);
    bubble.set_dependency_ns(dependency);
    bubble.set_memory_ns(memory);
    bubble.set_group_ns(group);
    bubble.set_transfer_ns(predicted_.makespan_ns() - busy - bubble.fill_ns() - bubble.drain_ns() -
                           bubble.imbalance_ns() - dependency - memory - group);
  }

  // From when on the wait before a pass is one for memory.
  static int64_t FullFrom(const v1::Program& program, const v1::Instruction& pass, int64_t free,
                          int64_t in_use) {
    int position = pass.id();
    while (position < program.instructions_size() && program.instructions(position).op() != v1::OP_FORWARD)
      ++position;
    if (position == program.instructions_size()) return pass.expected_start_ns();
    const v1::Instruction& forward = program.instructions(position);
    int64_t need = forward.memory_acquired_bytes(), input = 0;
    for (const uint32_t dep : forward.deps()) {
      const v1::Instruction* made = &program.instructions(dep);
      if (made->op() == v1::OP_LOAD) need += made->memory_acquired_bytes();
      if (made->op() == v1::OP_WAIT) made = &program.instructions(made->transfer_id());
      if (made->op() != v1::OP_LOAD) input = std::max(input, EndOf(*made));
    }
    for (const v1::Instruction& other : program.instructions())
      if (IsPass(other) && other.op() != v1::OP_FORWARD && other.stage() == forward.stage() &&
          other.micro_batch() == forward.micro_batch())
        need += other.memory_acquired_bytes();
    if (need <= program.memory_limit_bytes() - in_use) return pass.expected_start_ns();
    return std::min(std::max(input, free), pass.expected_start_ns());
  }

  int64_t Moving(const v1::Program& program, const v1::Instruction& wait, int64_t free, int64_t full) const {
    const v1::Instruction& recv = program.instructions(wait.transfer_id());
    const v1::Program& sender = plan_.programs(recv.transfer().peer());
    int64_t ready = 0;
    for (const v1::Instruction& send : sender.instructions())
      if (send.op() == v1::OP_SEND && send.transfer().order() == recv.transfer().order())
        for (const uint32_t dep : send.deps()) ready = std::max(ready, EndOf(sender.instructions(dep)));
    return std::max<int64_t>(0, std::min(full, EndOf(recv)) - std::max(free, ready));
  }

  v1::Plan& plan_;
  v1::Prediction& predicted_;
};

}  // namespace

void Seal(v1::Plan* plan) {
  Clock(plan).Run();
  SealTimes(plan);
}

void SealTimes(v1::Plan* plan) {
  Predictions(plan).Set();
  SealHash(plan);
}

void SealHash(v1::Plan* plan) {
  plan->clear_content_hash();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream output(&stream);
    output.SetSerializationDeterministic(true);
    plan->SerializeToCodedStream(&output);
  }
  plan->set_content_hash(Sha256(bytes));
}

int64_t PeakOf(const v1::Program& program) {
  int64_t bytes = program.static_memory_bytes();
  int64_t peak = bytes;
  for (const v1::Instruction& instruction : program.instructions()) {
    peak = std::max(peak, bytes + instruction.memory_acquired_bytes());
    bytes += instruction.memory_acquired_bytes() - instruction.memory_released_bytes();
  }
  return peak;
}

}  // namespace penstock::core
