// The end of a process that has done what it had to.
#pragma once

namespace penstock {

// Ends the process with the status, as returning from main does, but for objects that are static: destroying
// LibTorch's takes 0.1 s of each worker, and CUDA's may wait for its driver. What is in the buffers of the
// standard streams is written. Where a sanitizer looks for leaks at the end, they are destroyed all the same.
[[noreturn]] void LeaveProcess(int status);

}  // namespace penstock
