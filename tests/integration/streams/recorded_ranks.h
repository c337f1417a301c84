// Programs as a worker with a GPU runs them, on streams that write down what is asked of them. The model is
// the real one, on tensors without values (LibTorch's meta device): whoever reads one on the host gets an
// error, so that no computation can wait for the device unnoticed. Neither protobuf nor LibTorch.
#pragma once

#include "absl/status/status.h"
#include "tests/integration/streams/recording.h"
#include "worker/program/job.h"
#include "worker/program/program.h"
#include "worker/runtime/iteration_result.h"

namespace penstock::worker {

struct RecordedRun {
  absl::Status status;
  IterationResult result;
  Recording recording;
};

// The second of two iterations.
RecordedRun RunRecorded(const JobConfig& job, uint32_t rank, const Program& program);

// What comes of reading a value on the host, and of copying it there, in the middle of an iteration.
absl::Status ReadValue();
absl::Status CopyToHost();

}  // namespace penstock::worker
