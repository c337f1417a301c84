#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/sync/sync.h"
#include "common/sync/task_thread.h"
#include "worker/device/instruction_order.h"
#include "worker/program/describe.h"

namespace penstock::worker {
namespace {

// Does one work after another, until one fails.
class BesideThread {
 public:
  // Counts from 0 again. Nothing is under way.
  void Restart() {
    MutexLock lock(&mutex_);
    added_ = done_ = 0;
  }

  void Add(std::function<absl::Status()> work) {
    {
      MutexLock lock(&mutex_);
      ++added_;
    }
    thread_.Add([this, work = std::move(work)] {
      const absl::Status status = failed() ? absl::OkStatus() : work();
      MutexLock lock(&mutex_);
      if (status_.ok()) status_ = status;
      ++done_;
      changed_.SignalAll();
    });
  }

  absl::Status Await(size_t count) {
    MutexLock lock(&mutex_);
    while (done_ < count) changed_.Wait(&mutex_);
    return status_;
  }

  // Of all. The next work is done again, whatever became of these.
  absl::Status AwaitAll() {
    MutexLock lock(&mutex_);
    while (done_ < added_) changed_.Wait(&mutex_);
    return std::exchange(status_, absl::OkStatus());
  }

 private:
  bool failed() {
    MutexLock lock(&mutex_);
    return !status_.ok();
  }

  Mutex mutex_;
  CondVar changed_;
  size_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // Last, so that it ends first.
  TaskThread thread_{"reductions"};
};

class HostOrder : public InstructionOrder {
 public:
  explicit HostOrder(InstructionTimer* timer) : timer_(*timer) {}

  absl::Status Start(const Program& program) override {
    program_ = &program;
    pending_.clear();
    pending_.resize(program.instructions.size());
    if (beside_ != nullptr) beside_->Restart();
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

  absl::Status Beside(std::function<absl::Status()> work) override {
    if (beside_ == nullptr) beside_ = std::make_unique<BesideThread>();
    beside_->Add(std::move(work));
    return absl::OkStatus();
  }

  absl::Status AwaitBeside(size_t count) override {
    return count == 0 ? absl::OkStatus() : beside_->Await(count);
  }

  absl::Status AwaitBeside() override { return beside_ == nullptr ? absl::OkStatus() : beside_->AwaitAll(); }

  absl::Status Finish() override {
    for (uint32_t id = 0; id < pending_.size(); ++id) PENSTOCK_RETURN_IF_ERROR(Await(id));
    return absl::OkStatus();
  }

 private:
  InstructionTimer& timer_;
  const Program* program_ = nullptr;
  // By id of the instruction that started it; null once it has ended.
  std::vector<std::unique_ptr<PendingTransfer>> pending_;
  // Once there is work beside.
  std::unique_ptr<BesideThread> beside_;
};

}  // namespace

std::unique_ptr<InstructionOrder> MakeHostOrder(InstructionTimer* timer) {
  return std::make_unique<HostOrder>(timer);
}

}  // namespace penstock::worker
