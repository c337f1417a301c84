#include "common/process/background_thread.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace penstock {
namespace {

// On top of the process' own. 5 steps are a third of the weight (sched(7)).
constexpr int kNicer = 5;
constexpr int kNicest = 19;
// For which it may compute before the next one is chosen; 3 ms are usual. Who wakes up and asks for less
// goes first at once (Linux 6.12, PREEMPT_SHORT of kernel/sched/features.h; older ones know no such wish).
constexpr uint64_t kSliceNanoseconds = 30'000'000;

// sched_setattr(2), for which C has no header: struct sched_attr of linux/sched/types.h, first version.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;
  uint64_t deadline = 0;
  uint64_t period = 0;
};

}  // namespace

void BecomeBackgroundThread() {
  // Of Linux, a number 0 is the calling thread alone. Nobody is kept from becoming nicer.
  const int nice = std::min(kNicest, getpriority(PRIO_PROCESS, 0) + kNicer);
  SchedulingAttributes attributes;
  attributes.nice = nice;
  attributes.runtime = kSliceNanoseconds;
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) setpriority(PRIO_PROCESS, 0, nice);
}

}  // namespace penstock
