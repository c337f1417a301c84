#include "worker/memory/heap.h"

#include <malloc.h>

namespace penstock::worker {

void KeepFreedMemory() {
  constexpr int kGiB = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kGiB);
  mallopt(M_TRIM_THRESHOLD, 2 * (kGiB - 1));
}

void ReturnFreedMemory() { malloc_trim(/*pad=*/0); }

}  // namespace penstock::worker
