// Rule 6: memory stays within the limit and all of it is given back.
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

// Micro-batch of the account that REDUCE_GRADIENTS and OPTIMIZER_STEP use.
constexpr int64_t kWholeIteration = -1;

int64_t AccountOf(const v1::Instruction& instruction) {
  const bool whole = instruction.op() == v1::OP_REDUCE_GRADIENTS || instruction.op() == v1::OP_OPTIMIZER_STEP;
  return whole ? kWholeIteration : instruction.micro_batch();
}

class Ledger {
 public:
  Ledger(int rank, const v1::Program& program, Report& report)
      : rank_(rank),
        limit_(program.memory_limit_bytes()),
        in_use_(program.static_memory_bytes()),
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
    const auto entry = accounts_.try_emplace({AccountOf(instruction), instruction.stage()}, 0).first;
    int64_t& account = entry->second;
    in_use_ += acquired;
    account += acquired;
    if (released > account)
      return Fail(instruction, absl::StrCat("it gives back ", released, " bytes, but its micro-batch holds ",
                                            account, " on this stage"));
    in_use_ -= released;
    account -= released;
    if (account == 0) accounts_.erase(entry);
    return true;
  }

  void Close() {
    for (const auto& [key, bytes] : accounts_) {
      const std::string owner =
          key.first == kWholeIteration ? "the end of the iteration" : absl::StrCat("micro-batch ", key.first);
      report_.AddAt(kMemory, rank_,
                    absl::StrCat(owner, " on stage ", key.second, " never gives back ", bytes, " bytes"));
    }
  }

 private:
  bool Fail(const v1::Instruction& instruction, const std::string& message) {
    report_.AddAt(kMemory, rank_, instruction, message);
    return false;
  }

  const int rank_;
  const int64_t limit_;
  int64_t in_use_;
  // Bytes by (micro-batch, stage); those that hold nothing are absent.
  std::map<std::pair<int64_t, uint32_t>, int64_t> accounts_;
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
    Ledger ledger(rank, program, report);
    bool sound = true;
    for (int i = 0; sound && i < program.instructions_size(); ++i)
      sound = ledger.Run(program.instructions(i));
    if (sound) ledger.Close();
  }
}

}  // namespace penstock::core::verify
