// The streams of a device: all that the order of instructions needs to know of an accelerator. Small, so that
// a recording one can stand in for it (tests/integration/streams/recorded_streams.h).
//
// What the host launches goes to the stream that was entered last, and runs there in the order in which it
// was launched. Streams run side by side; marks order them. No call but Synchronize lets the host wait.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/iteration_marks.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Calls come from one thread. Possible errors of all: INTERNAL (the device; also of what was launched
// before).
class DeviceStreams {
 public:
  virtual ~DeviceStreams() = default;

  // From now on there are `count` marks, none of which has been set.
  virtual absl::Status Reset(size_t count) = 0;
  // What this thread launches goes to the stream from now on.
  virtual absl::Status Enter(Stream stream) = 0;
  // Sets a mark on the entered stream, behind all that was launched there.
  virtual absl::Status Set(Mark mark) = 0;
  // What is launched on the entered stream from now on waits for the mark, which was set.
  virtual absl::Status WaitFor(Mark mark) = 0;
  // What has been launched on the entered stream uses the tensor, which was made on another one: its memory
  // is given to nobody else before that has been done.
  virtual absl::Status Use(const at::Tensor& tensor) = 0;
  // Blocks the host until all streams have done what was launched.
  virtual absl::Status Synchronize() = 0;
  // Nanoseconds from one mark to the other. After Synchronize.
  virtual absl::StatusOr<int64_t> Between(Mark from, Mark to) = 0;
};

}  // namespace penstock::worker
