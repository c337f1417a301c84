// When each instruction of an iteration began and how long it took. The executor tells of every instruction;
// what it is measured with depends on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/agent/control_plane.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Calls: StartIteration, then Begin and End for each instruction in turn, then Finish.
class InstructionTimer {
 public:
  virtual ~InstructionTimer() = default;

  virtual void StartIteration() = 0;
  virtual void Begin(const Instruction& instruction) = 0;
  virtual void End(const Instruction& instruction) = 0;
  // In the order of execution. On a GPU it blocks until the work is done.
  virtual absl::StatusOr<std::vector<MeasuredInstruction>> Finish() = 0;
};

// Host time on a steady clock: right where instructions run on the calling thread.
std::unique_ptr<InstructionTimer> MakeHostTimer();

}  // namespace penstock::worker
