// SIGINT and SIGTERM as something to wait for, so that a run ends in order.
//
//   StopSignal stop;                                      // before any other thread is started
//   while (!done) { if (stop.WaitFor(absl::Milliseconds(50))) return absl::CancelledError(...); ... }
#pragma once

#include "absl/time/time.h"
#include "common/process/file_descriptor.h"

namespace penstock::cli {

class StopSignal {
 public:
  // Blocks both signals in this thread and those that it starts later.
  StopSignal();

  // True once a signal has come. Blocks until then, or until the time is over.
  bool WaitFor(absl::Duration timeout);

  // The same for one more signal, after the first.
  bool WaitForAnother(absl::Duration timeout);

 private:
  // Takes a signal that comes within the time.
  bool Take(absl::Duration timeout);

  FileDescriptor descriptor_;
  bool received_ = false;
  bool received_another_ = false;
};

}  // namespace penstock::cli
