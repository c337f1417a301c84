// When each instruction of an iteration began and how long it took. The executor tells of every instruction;
// what it is measured with depends on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/agent/control_plane.h"
#include "worker/comm/host_span.h"
#include "worker/program/program.h"

namespace penstock::worker {

class DeviceStreams;

struct IterationTimes {
  // Wall clock at the start of the iteration; the times of instructions count from there.
  int64_t started_unix_ns = 0;
  int64_t duration_ns = 0;
  // In the order of execution.
  std::vector<MeasuredInstruction> instructions = {};
  // See ReportIterationRequest.
  int64_t lone_pass_ns = 0;
  int64_t lone_pass_core_ns = 0;
  // Of a device without tensors: by the plan's account. 0: what tensors take says it.
  int64_t peak_memory_bytes = 0;
};

// Calls: StartIteration, then Begin and End for each instruction in turn, then Finish, when everything has
// been done. They come from one thread and may block: on a simulated device Begin waits for what the
// instruction depends on, and End takes the time that it takes. Possible errors of all: CANCELLED (the
// communicator was aborted), UNAVAILABLE (a peer is gone).
class InstructionTimer {
 public:
  virtual ~InstructionTimer() = default;

  // `program` must live until Finish.
  virtual absl::Status StartIteration(const Program& program) = 0;
  virtual absl::Status Begin(const Instruction& instruction) = 0;
  virtual absl::Status End(const Instruction& instruction) = 0;
  // An instruction that was ended, but went on beside those after it, ran in this time.
  virtual void Ran(uint32_t /*id*/, const HostSpan& /*span*/) {}
  // The instruction that runs has waited so long for what ran beside it: it counts as begun so much later.
  virtual void Waited(int64_t /*ns*/) {}
  // The pass that runs, which is joint, has waited so long for what it exchanges with its stage group. Counts
  // where the host's time is measured.
  virtual void Exchanged(int64_t /*ns*/) {}
  virtual absl::StatusOr<IterationTimes> Finish() = 0;
};

// Host time on a steady clock: right where instructions run on the calling thread. `computes_alone`: no
// other thread computes for it, so that what passes take beyond its time on a core is what others had.
std::unique_ptr<InstructionTimer> MakeHostTimer(bool computes_alone = false);

// The device's own time, between marks on its streams. An order on the same streams (MakeStreamOrder) starts
// the iteration before the timer and ends each instruction. `streams` must outlive the timer.
std::unique_ptr<InstructionTimer> MakeStreamTimer(DeviceStreams* streams);

}  // namespace penstock::worker
