#include <optional>
#include <utility>
#include <vector>

#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/device/instruction_order.h"
#include "worker/program/describe.h"

namespace penstock::worker {
namespace {

class HostOrder : public InstructionOrder {
 public:
  explicit HostOrder(InstructionTimer* timer) : timer_(*timer) {}

  absl::Status Start(const Program& program) override {
    program_ = &program;
    pending_.clear();
    pending_.resize(program.instructions.size());
    return absl::OkStatus();
  }

  // Reductions have no WAIT that would take the time.
  absl::Status Prepare(const Instruction& instruction) override {
    for (const uint32_t dep : instruction.deps) {
      const Instruction& earlier = program_->instructions[dep];
      if (earlier.op != Op::kReduceGradients) continue;
      PENSTOCK_RETURN_IF_ERROR(AnnotateError(Await(dep), Describe(*program_, earlier)));
    }
    return absl::OkStatus();
  }

  absl::Status Begin(const Instruction& instruction) override {
    for (const uint32_t dep : instruction.deps) PENSTOCK_RETURN_IF_ERROR(Await(dep));
    return instruction.op == Op::kWait ? Await(instruction.transfer) : absl::OkStatus();
  }

  absl::Status End(const Instruction& instruction, std::unique_ptr<PendingTransfer> started) override {
    pending_[instruction.id] = std::move(started);
    return absl::OkStatus();
  }

  absl::Status Use(const at::Tensor&) override { return absl::OkStatus(); }

  absl::Status Await(uint32_t id) override {
    if (pending_[id] == nullptr) return absl::OkStatus();
    const std::unique_ptr<PendingTransfer> transfer = std::move(pending_[id]);
    PENSTOCK_RETURN_IF_ERROR(transfer->Wait());
    if (const std::optional<HostSpan> span = transfer->span()) timer_.Ran(id, *span);
    return absl::OkStatus();
  }

  bool Awaited(uint32_t id) const override { return pending_[id] == nullptr; }

  absl::Status Finish() override {
    for (uint32_t id = 0; id < pending_.size(); ++id) PENSTOCK_RETURN_IF_ERROR(Await(id));
    return absl::OkStatus();
  }

 private:
  InstructionTimer& timer_;
  const Program* program_ = nullptr;
  // By id of the instruction that started it; null once it has ended.
  std::vector<std::unique_ptr<PendingTransfer>> pending_;
};

}  // namespace

std::unique_ptr<InstructionOrder> MakeHostOrder(InstructionTimer* timer) {
  return std::make_unique<HostOrder>(timer);
}

}  // namespace penstock::worker
