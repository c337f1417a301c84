#include "common/process/background_thread.h"

#include <sys/resource.h>

#include <algorithm>

namespace penstock {
namespace {

// On top of the process' own. 5 steps are a third of the weight (sched(7)).
constexpr int kNicer = 5;
constexpr int kNicest = 19;

}  // namespace

void BecomeBackgroundThread() {
  // Of Linux, a number 0 is the calling thread alone. Nobody is kept from becoming nicer.
  setpriority(PRIO_PROCESS, 0, std::min(kNicest, getpriority(PRIO_PROCESS, 0) + kNicer));
}

}  // namespace penstock
