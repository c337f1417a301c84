#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "common/status/status_macros.h"
#include "worker/device/device_streams.h"
#include "worker/device/instruction_order.h"
#include "worker/device/iteration_marks.h"

namespace penstock::worker {
namespace {

class StreamOrder : public InstructionOrder {
 public:
  explicit StreamOrder(DeviceStreams* streams) : streams_(*streams) {}

  absl::Status Start(const Program& program) override {
    program_ = &program;
    const auto layers =
        std::accumulate(program.layers_per_stage.begin(), program.layers_per_stage.end(), size_t{0});
    marks_ = IterationMarks(program.instructions.size(), layers + 1);
    works_ = 0;
    works_waited_ = {};
    waited_ = {};
    PENSTOCK_RETURN_IF_ERROR(streams_.Reset(marks_.count()));
    return Enter(Stream::kCompute);
  }

  absl::Status Prepare(const Instruction& instruction) override {
    PENSTOCK_RETURN_IF_ERROR(Enter(instruction.stream));
    if (instruction.op == Op::kWait) return absl::OkStatus();
    return AwaitDeps(instruction);
  }

  absl::Status Begin(const Instruction& instruction) override {
    if (instruction.op != Op::kWait) return absl::OkStatus();
    if (program_->instructions[instruction.transfer].op == Op::kSend) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(AwaitDeps(instruction));
    return Await(instruction.transfer);
  }

  // The transfer's own Wait has the entered stream wait, not the host.
  absl::Status End(const Instruction& instruction, std::unique_ptr<PendingTransfer> started) override {
    if (started != nullptr) PENSTOCK_RETURN_IF_ERROR(started->Wait());
    return streams_.Set(marks_.EndOf(instruction.id));
  }

  absl::Status Use(const at::Tensor& tensor) override { return streams_.Use(tensor); }

  // Streams are in order: who has waited for one instruction has waited for all before it on its stream.
  absl::Status Await(uint32_t id) override {
    const Stream of = program_->instructions[id].stream;
    uint32_t& waited = Waited(entered_, of);
    if (of == entered_ || id < waited) return absl::OkStatus();
    waited = id + 1;
    return streams_.WaitFor(marks_.EndOf(id));
  }

  bool Awaited(uint32_t id) const override {
    return id < Waited(Stream::kCompute, program_->instructions[id].stream);
  }

  absl::Status Beside(std::function<absl::Status()> work) override {
    const Stream from = entered_;
    PENSTOCK_RETURN_IF_ERROR(streams_.Set(marks_.beside()));
    PENSTOCK_RETURN_IF_ERROR(Enter(Stream::kCollective));
    PENSTOCK_RETURN_IF_ERROR(streams_.WaitFor(marks_.beside()));
    PENSTOCK_RETURN_IF_ERROR(work());
    if (works_ < marks_.works()) PENSTOCK_RETURN_IF_ERROR(streams_.Set(marks_.EndOfWork(works_)));
    ++works_;
    return Enter(from);
  }

  // They are in order, and on the stream of collectives whatever is launched is behind them.
  absl::Status AwaitBeside(size_t count) override {
    size_t& waited = works_waited_[static_cast<size_t>(entered_)];
    if (entered_ == Stream::kCollective || count <= waited) return absl::OkStatus();
    waited = count;
    return streams_.WaitFor(marks_.EndOfWork(count - 1));
  }

  // Its errors have been Beside's.
  absl::Status AwaitBeside() override { return absl::OkStatus(); }

  absl::Status Finish() override {
    PENSTOCK_RETURN_IF_ERROR(Enter(Stream::kCompute));
    return streams_.Synchronize();
  }

 private:
  absl::Status Enter(Stream stream) {
    entered_ = stream;
    return streams_.Enter(stream);
  }

  absl::Status AwaitDeps(const Instruction& instruction) {
    for (const uint32_t dep : instruction.deps) PENSTOCK_RETURN_IF_ERROR(Await(dep));
    return absl::OkStatus();
  }

  uint32_t& Waited(Stream by, Stream of) { return waited_[static_cast<size_t>(by)][static_cast<size_t>(of)]; }
  uint32_t Waited(Stream by, Stream of) const {
    return waited_[static_cast<size_t>(by)][static_cast<size_t>(of)];
  }

  DeviceStreams& streams_;
  const Program* program_ = nullptr;
  IterationMarks marks_;
  Stream entered_ = Stream::kCompute;
  // Done beside so far, and by stream how many of them it has waited for.
  size_t works_ = 0;
  std::array<size_t, kStreamCount> works_waited_ = {};
  // By stream that waits, then stream that is waited for: ids below it.
  std::array<std::array<uint32_t, kStreamCount>, kStreamCount> waited_ = {};
};

}  // namespace

std::unique_ptr<InstructionOrder> MakeStreamOrder(DeviceStreams* streams) {
  return std::make_unique<StreamOrder>(streams);
}

}  // namespace penstock::worker
