// Rule 6: memory stays within the limit and all of it is given back, in every order that streams and deps
// allow.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/execution_order.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

// The account in the order of the program, which is one that streams and deps allow.
class Ledger {
 public:
  Ledger(const PlanIndex& index, int rank, Report& report)
      : index_(index),
        rank_(rank),
        stages_(index.program(rank).stages()),
        limit_(index.program(rank).memory_limit_bytes()),
        in_use_(index.program(rank).static_memory_bytes()),
        accounts_(static_cast<size_t>(stages_.size()) * (1 + index.MicroBatches(index.ReplicaOf(rank))), 0),
        report_(report) {}

  // Returns false at the first instruction after which the account means nothing any more. No sum here can
  // overflow: `in_use_` never passes the limit.
  bool Run(const v1::Instruction& instruction) {
    const int64_t acquired = instruction.memory_acquired_bytes();
    const int64_t released = instruction.memory_released_bytes();
    if (acquired < 0 || released < 0)
      return Fail(instruction, "memory_acquired_bytes or memory_released_bytes is negative");
    if (acquired > limit_ - in_use_)
      return Fail(instruction, absl::StrCat("it takes ", acquired, " bytes while ", in_use_, " of ", limit_,
                                            " are in use"));
    int64_t& account = AccountOf(instruction);
    in_use_ += acquired;
    account += acquired;
    if (released > account)
      return Fail(instruction, absl::StrCat("it gives back ", released, " bytes, but its micro-batch holds ",
                                            account, " on this stage"));
    in_use_ -= released;
    account -= released;
    return true;
  }

  void Close() {
    for (size_t i = 0; i < accounts_.size(); ++i) {
      if (accounts_[i] == 0) continue;
      const size_t owner = i / stages_.size();
      report_.AddAt(
          kMemory, rank_,
          absl::StrCat(owner == 0 ? "the end of the iteration" : absl::StrCat("micro-batch ", owner - 1),
                       " on stage ", stages_[static_cast<int>(i % stages_.size())], " never gives back ",
                       accounts_[i], " bytes"));
    }
  }

 private:
  int64_t& AccountOf(const v1::Instruction& instruction) {
    const size_t owner = IsOfWholeIteration(instruction.op()) ? 0 : size_t{1} + instruction.micro_batch();
    // Without a pass back a stage's output is given back by the stage above, which may be on the same rank.
    const int stage = index_.forward_only() ? 0 : index_.LocalStage(rank_, instruction.stage());
    return accounts_[owner * stages_.size() + stage];
  }

  bool Fail(const v1::Instruction& instruction, const std::string& message) {
    report_.AddAt(kMemory, rank_, instruction, message);
    return false;
  }

  const PlanIndex& index_;
  const int rank_;
  const google::protobuf::RepeatedField<uint32_t>& stages_;
  const int64_t limit_;
  int64_t in_use_;
  // Bytes held on each stage of the rank: first by the end of the iteration, then by micro-batch 0, 1, ...
  std::vector<int64_t> accounts_;
  Report& report_;
};

// The largest account of any order that streams and deps allow. The compute stream is one total order;
// whatever is on another stream takes its bytes as early, and gives them back as late, as it may: when one
// instruction of the compute stream runs, all others hold theirs that do not wait for its end.
class WorstCase {
 public:
  WorstCase(const v1::Program& program, const ExecutionOrder& order)
      : program_(program), limit_(program.memory_limit_bytes()), in_use_(program.static_memory_bytes()) {
    for (const v1::Instruction& instruction : program.instructions()) {
      if (instruction.stream() == v1::STREAM_COMPUTE) continue;
      const int64_t after = order.LastBefore(instruction, v1::STREAM_COMPUTE);
      if (instruction.memory_acquired_bytes() > 0) takers_.emplace_back(after, &instruction);
      if (instruction.memory_released_bytes() > 0) givers_.push_back(&instruction);
    }
    std::stable_sort(takers_.begin(), takers_.end(),
                     [](const Taker& a, const Taker& b) { return a.first < b.first; });
    Run(order);
  }

  // The instruction of the compute stream while which there may be too little memory, and what is missing;
  // null when there is always enough.
  const v1::Instruction* failed() const { return failed_; }
  int64_t missing_bytes() const { return missing_bytes_; }

 private:
  // The last instruction of the compute stream that it waits for, and itself.
  using Taker = std::pair<int64_t, const v1::Instruction*>;

  // No sum can overflow: `in_use_` never passes the limit, and is never below the account of the program's
  // order.
  void Run(const ExecutionOrder& order) {
    size_t next = 0;
    for (const v1::Instruction& running : program_.instructions()) {
      if (running.stream() != v1::STREAM_COMPUTE) continue;
      for (; next < takers_.size() && takers_[next].first < static_cast<int64_t>(running.id()); ++next)
        if (!Take(*takers_[next].second, running)) return;
      std::erase_if(givers_, [&](const v1::Instruction* giver) {
        if (!order.IsBefore(*giver, running)) return false;
        in_use_ -= giver->memory_released_bytes();
        return true;
      });
      if (!Take(running, running)) return;
      in_use_ -= running.memory_released_bytes();
    }
  }

  bool Take(const v1::Instruction& taker, const v1::Instruction& running) {
    const int64_t free = limit_ - in_use_;
    if (taker.memory_acquired_bytes() > free) {
      failed_ = &running;
      missing_bytes_ = taker.memory_acquired_bytes() - free;
      return false;
    }
    in_use_ += taker.memory_acquired_bytes();
    return true;
  }

  const v1::Program& program_;
  const int64_t limit_;
  int64_t in_use_;
  std::vector<Taker> takers_;
  std::vector<const v1::Instruction*> givers_;
  const v1::Instruction* failed_ = nullptr;
  int64_t missing_bytes_ = 0;
};

// What was sent, or loaded, is given back by a FREE of its own.
void CheckFrees(const PlanIndex& index, int rank, Report& report) {
  struct Pair {
    v1::Op op;
    uint32_t part;
    FreePart release;
  };
  static constexpr Pair kPairs[] = {{v1::OP_SEND, kActivation, kFreeOutputActivation},
                                    {v1::OP_SEND, kGradient, kFreeInputGradient},
                                    {v1::OP_LOAD, 0, kFreeLoadedTokens}};
  for (uint32_t stage : index.program(rank).stages())
    for (int m = 0; m < index.MicroBatches(index.ReplicaOf(rank)); ++m)
      for (const Pair& pair : kPairs) {
        const v1::Instruction* user = index.Find(rank, pair.op, stage, m, pair.part);
        if (user != nullptr && index.Find(rank, v1::OP_FREE, stage, m, pair.release) == nullptr)
          report.AddAt(kMemory, rank, *user, "there is no FREE for its buffer");
      }
}

}  // namespace

void CheckMemory(const PlanIndex& index, Report& report) {
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank) {
    const v1::Program& program = index.program(rank);
    CheckFrees(index, rank, report);
    if (program.static_memory_bytes() < 0 || program.static_memory_bytes() > program.memory_limit_bytes()) {
      report.AddAt(kMemory, rank,
                   absl::StrCat("static_memory_bytes is ", program.static_memory_bytes(), ", the limit is ",
                                program.memory_limit_bytes()));
      continue;
    }
    Ledger ledger(index, rank, report);
    bool sound = true;
    for (int i = 0; sound && i < program.instructions_size(); ++i)
      sound = ledger.Run(program.instructions(i));
    if (!sound) continue;
    ledger.Close();
    const WorstCase worst(program, ExecutionOrder(program));
    if (worst.failed() != nullptr)
      report.AddAt(kMemory, rank, *worst.failed(),
                   absl::StrCat("while it runs, transfers that need not wait for it may take ",
                                worst.missing_bytes(), " bytes more than the limit of ",
                                program.memory_limit_bytes(), "; give those RECVs deps"));
  }
}

}  // namespace penstock::core::verify
