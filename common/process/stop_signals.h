// SIGTERM and SIGINT, the signals that ask a process to end in good order.
//
//   BlockStopSignals();                          // first thing in main, before any thread
//   FileDescriptor signals = OpenStopSignals();  // readable once one has come
#pragma once

#include <signal.h>

#include "common/process/file_descriptor.h"

namespace penstock {

sigset_t StopSignals();

// Blocks them in the calling thread and in those that it starts later, so that only who waits for them sees
// them.
void BlockStopSignals();

// A non-blocking signalfd(2) of them. They must be blocked.
FileDescriptor OpenStopSignals();

}  // namespace penstock
