// How the C library's heap serves tensors on the CPU.
#pragma once

namespace penstock::worker {

// Has freed memory stay with the process, so that the tensors of the next micro-batch find it: otherwise the
// heap gives large blocks back to the kernel at once, and a sixth of a training step goes into zeroing them
// anew. Call it before there are threads. Idempotent.
void KeepFreedMemory();

// Gives the system what is free now: after work that took more than training will.
void ReturnFreedMemory();

}  // namespace penstock::worker
