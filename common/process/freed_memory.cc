#include "common/process/freed_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace penstock {
namespace {

#ifdef __GLIBC__

// Of all arenas, and what is mapped by itself.
size_t BytesInUse() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

void Trim() { malloc_trim(0); }

#else

size_t BytesInUse() { return ResidentBytes(); }
void Trim() {}

#endif

size_t BytesNotInUse() {
  const size_t resident = ResidentBytes();
  return resident - std::min(resident, BytesInUse());
}

}  // namespace

void FreedMemory::GiveBack() {
  const size_t now = BytesNotInUse();
  least_ = std::min(least_.value_or(now), now);
  if (now < *least_ + kFreedMemoryStep) return;
  Trim();
  least_ = BytesNotInUse();
}

void GiveAllFreedMemoryBack() { Trim(); }

size_t ResidentBytes() {
  // Pages: of the program, and of those the resident ones (proc(5)).
  std::ifstream pages("/proc/self/statm");
  size_t size = 0;
  size_t resident = 0;
  if (!(pages >> size >> resident)) return 0;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace penstock
