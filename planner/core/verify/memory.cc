// Rule 6: memory stays within the limit and all of it is given back.
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

bool IsOfWholeIteration(v1::Op op) { return op == v1::OP_REDUCE_GRADIENTS || op == v1::OP_OPTIMIZER_STEP; }

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
    return accounts_[owner * stages_.size() + index_.LocalStage(instruction.stage())];
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
  for (int rank = 0; rank < index.ranks(); ++rank) {
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
    if (sound) ledger.Close();
  }
}

}  // namespace penstock::core::verify
