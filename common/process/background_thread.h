// Threads that compute for long beside others that answer.
#pragma once

namespace penstock {

// The calling thread gives way from now on: where cores are short, threads of this process that wake up to
// answer somebody go first, and others have three times as much of them. Where they are not, nothing changes.
void BecomeBackgroundThread();

}  // namespace penstock
