// How the instructions of a program wait for each other. The executor says what it launches; who waits, the
// host or a stream of a device, depends on the device.
//
//   PENSTOCK_RETURN_IF_ERROR(order->Start(program));
//   for each instruction:
//     order->Prepare(instruction);               // its own time begins after it
//     order->Begin(instruction);
//     ... launch; order->Use(tensor) for each tensor that another stream has made ...
//     order->End(instruction, transfer or reduction that it has started, or null);
//   PENSTOCK_RETURN_IF_ERROR(order->Finish());   // now the host may read
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/device/device_streams.h"
#include "worker/device/instruction_timer.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Calls come from one thread. Possible errors of all: those of PendingTransfer::Wait and of DeviceStreams.
class InstructionOrder {
 public:
  virtual ~InstructionOrder() = default;

  // `program` must live until the next Start. What was under way is forgotten.
  virtual absl::Status Start(const Program& program) = 0;
  // Prepare and Begin together have the instruction wait for its deps, and a WAIT for its transfer. What is
  // waited for in Begin is time of the instruction's own.
  virtual absl::Status Prepare(const Instruction& instruction) = 0;
  virtual absl::Status Begin(const Instruction& instruction) = 0;
  virtual absl::Status End(const Instruction& instruction, std::unique_ptr<PendingTransfer> started) = 0;
  // The instruction that has begun uses a tensor that one of another stream has made.
  virtual absl::Status Use(const at::Tensor& tensor) = 0;
  // What is launched from now on waits for the transfer or reduction `id`.
  virtual absl::Status Await(uint32_t id) = 0;
  // Whether something has waited for the transfer or reduction `id`.
  virtual bool Awaited(uint32_t id) const = 0;
  // Has `work` done beside what is launched from now on, on the stream of collectives, behind what has been
  // launched so far and all such work before. CPU: on a thread of its own, where it may block. An error
  // ends all that follows, and is AwaitBeside's (GPU: this call's). It must not call this object, and what it
  // uses must live until AwaitBeside has returned, which has to be called.
  virtual absl::Status Beside(std::function<absl::Status()> work) = 0;
  // What is launched from now on waits for the first `count` of such works since Start, of as many as the
  // pipeline has layers and one more. CPU: blocks. Possible errors: those of the works.
  virtual absl::Status AwaitBeside(size_t count) = 0;
  // CPU: blocks until all such work has been done; GPU: what is launched on the stream of collectives is
  // behind it anyway. Possible errors: those of the work.
  virtual absl::Status AwaitBeside() = 0;
  // Blocks the host until everything has been done.
  virtual absl::Status Finish() = 0;
};

// Where launching is doing (CPU): the host waits. `timer` is told when what ran beside other instructions
// ran; it must outlive the order.
std::unique_ptr<InstructionOrder> MakeHostOrder(InstructionTimer* timer);

// On the streams of a device: they wait, and the host only in Finish. A stream waits for another one only
// where a dep, or a WAIT, says so. A WAIT for a SEND has nothing wait: the memory of what is sent is given
// back when it has been sent (DeviceStreams::Use), and until then computing goes on. `streams` must outlive
// the order.
std::unique_ptr<InstructionOrder> MakeStreamOrder(DeviceStreams* streams);

}  // namespace penstock::worker
