// Rules 3 and 6: every WAIT has its transfer, every FREE its buffer, and the bytes that follow from tokens
// and transfers are right (execution.md, section 8). What layers store follows from a cost profile alone.
#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

using Found = const v1::Instruction*;

// Two integers of 64 bits for each token that is embedded, and for each position of the loss.
constexpr uint64_t kLoadedBytes = 16;

class RankBuffers {
 public:
  RankBuffers(const PlanIndex& index, int rank, Report& report)
      : index_(index), rank_(rank), replica_(index.ReplicaOf(rank)), report_(report) {}

  void Check(const v1::Instruction& instruction) {
    switch (instruction.op()) {
      case v1::OP_LOAD:
        return Expect(instruction, LoadedBytes(instruction), 0);
      case v1::OP_RECV:
        return Expect(instruction, instruction.transfer().bytes(), 0);
      case v1::OP_FREE:
        return CheckFree(instruction);
      case v1::OP_FORWARD:
        return CheckMaker(instruction, kActivation);
      case v1::OP_BACKWARD:
      case v1::OP_BACKWARD_INPUT:
        return CheckMaker(instruction, kGradient);
      case v1::OP_WAIT:
        CheckWait(instruction);
        [[fallthrough]];
      case v1::OP_SEND:
      case v1::OP_REDUCE_GRADIENTS:
      case v1::OP_RESHARD:
      case v1::OP_OPTIMIZER_STEP:
        return Expect(instruction, 0, 0);
      default:
        return;
    }
  }

 private:
  Found Same(const v1::Instruction& instruction, v1::Op op, uint32_t part) const {
    return index_.Find(rank_, op, instruction.stage(), instruction.micro_batch(), part);
  }

  uint64_t LoadedBytes(const v1::Instruction& load) const {
    const Share& share = index_.ShareOf(replica_, load.micro_batch(), index_.ContextOf(rank_));
    const uint32_t stage = load.stage();
    const bool t5 = index_.plan().model().architecture() == v1::ARCHITECTURE_T5;
    uint64_t loaded = 0;
    if (stage == 0 && t5) loaded += share.source;
    if (index_.EmbedsTarget(replica_, stage)) loaded += share.target;
    if (static_cast<int>(stage) + 1 == index_.StagesOf(replica_)) loaded += share.loss;
    return kLoadedBytes * loaded;
  }

  void Expect(const v1::Instruction& instruction, uint64_t acquired, uint64_t released) {
    const auto expect = [&](const char* field, int64_t found, uint64_t expected) {
      if (found >= 0 && static_cast<uint64_t>(found) == expected) return;
      report_.AddAt(kMemory, rank_, instruction, absl::StrCat(field, " is ", found, ", expected ", expected));
    };
    expect("memory_acquired_bytes", instruction.memory_acquired_bytes(), acquired);
    expect("memory_released_bytes", instruction.memory_released_bytes(), released);
  }

  void CheckWait(const v1::Instruction& wait) {
    const bool received = wait.part() == kWaitReceivedActivation || wait.part() == kWaitReceivedGradient;
    const bool gradient = wait.part() == kWaitReceivedGradient || wait.part() == kWaitSentGradient;
    if (Same(wait, received ? v1::OP_RECV : v1::OP_SEND, gradient ? kGradient : kActivation) == nullptr)
      report_.AddAt(kDependencies, rank_, wait,
                    absl::StrCat("there is no ", received ? "RECV" : "SEND", " to wait for"));
  }

  void CheckFree(const v1::Instruction& release) {
    const bool loaded = release.part() == kFreeLoadedTokens;
    const uint32_t part = release.part() == kFreeInputGradient ? kGradient : kActivation;
    const Found user = loaded ? Same(release, v1::OP_LOAD, 0) : Same(release, v1::OP_SEND, part);
    if (user == nullptr)
      return report_.AddAt(
          kMemory, rank_, release,
          absl::StrCat("there is no ", loaded ? "LOAD" : "SEND", " whose buffer it could give back"));
    Expect(release, 0, loaded ? LoadedBytes(*user) : user->transfer().bytes());
  }

  // What makes a tensor that is sent takes at least a buffer for it.
  void CheckMaker(const v1::Instruction& pass, TransferPart part) {
    const Found send = Same(pass, v1::OP_SEND, part);
    if (send == nullptr || pass.memory_acquired_bytes() < 0) return;
    if (static_cast<uint64_t>(pass.memory_acquired_bytes()) < send->transfer().bytes())
      report_.AddAt(kMemory, rank_, pass,
                    absl::StrCat("memory_acquired_bytes is ", pass.memory_acquired_bytes(),
                                 ", expected at least the ", send->transfer().bytes(), " of what it sends"));
  }

  const PlanIndex& index_;
  const int rank_;
  const int replica_;
  Report& report_;
};

}  // namespace

void CheckBuffers(const PlanIndex& index, Report& report) {
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank) {
    RankBuffers buffers(index, rank, report);
    for (const v1::Instruction& instruction : index.program(rank).instructions()) buffers.Check(instruction);
  }
}

}  // namespace penstock::core::verify
