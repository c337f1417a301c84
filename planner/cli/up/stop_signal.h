// SIGINT and SIGTERM as something to wait for, so that a run ends in order.
//
//   StopSignal stop;                                      // before any other thread is started
//   while (!done) { if (stop.WaitFor(absl::Milliseconds(50))) return absl::CancelledError(...); ... }
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "common/process/file_descriptor.h"

namespace penstock::cli {

class StopSignal {
 public:
  // Blocks both signals in this thread and those that it starts later.
  StopSignal();

  // True once a signal has come. Blocks until then, until the time is over, or until one of `others` is
  // readable.
  bool WaitFor(absl::Duration timeout, const std::vector<int>& others = {});

  // The same for one more signal, after the first.
  bool WaitForAnother(absl::Duration timeout);

 private:
  // Takes a signal that comes within the time, and before one of `others` is readable.
  bool Take(absl::Duration timeout, const std::vector<int>& others);

  FileDescriptor descriptor_;
  bool received_ = false;
  bool received_another_ = false;
};

}  // namespace penstock::cli
