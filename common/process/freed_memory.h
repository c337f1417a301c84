// Gives memory that was freed back to the system. The C library gives back by itself what is free at the end
// of an arena alone, and there is an arena for nearly every thread: a server whose connections came and went
// keeps tens of megabytes of holes.
//
//   FreedMemory freed;
//   const Ticker ticker("freed-memory", absl::Seconds(10), [&] { freed.GiveBack(); });
#pragma once

#include <cstddef>
#include <optional>

namespace penstock {

// By so much what the process has beside the memory in use must have grown since memory was given back last.
inline constexpr size_t kFreedMemoryStep = size_t{32} << 20;

class FreedMemory {
 public:
  // Looks through what is free in each arena, whose allocations wait for it meanwhile; some milliseconds more
  // where there is something to give back. Not thread-safe; nothing where the C library is not glibc.
  void GiveBack();

 private:
  // Resident memory that is not in use: after it was given back, or the least that was seen since. Holes, and
  // the program itself.
  std::optional<size_t> least_;
};

// All of it, however little.
void GiveAllFreedMemoryBack();

// Of this process, in bytes; 0: not known.
size_t ResidentBytes();

}  // namespace penstock
