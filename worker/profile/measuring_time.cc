#include "worker/profile/measuring_time.h"

#include <utility>

namespace penstock::worker {
namespace {

bool IsOneThreadOnCpu(const MeasuredDevice& device, const MeasuringThreads& threads) {
  return device.place.is_cpu() && threads.threads == 1;
}

}  // namespace

MeasuringTime::MeasuringTime(const MeasuredDevice& device, const MeasuringThreads& threads,
                             NanosecondClock clock, double first_pulse)
    : shares_core_(!clock && threads.shared_cores && IsOneThreadOnCpu(device, threads)),
      pace_(
          AfterWaiting(device.wait, clock                               ? clock
                                    : IsOneThreadOnCpu(device, threads) ? NanosecondClock(ThreadNanoseconds)
                                                                        : NanosecondClock(SteadyNanoseconds)),
          device.place.is_cpu() && !threads.shared_cores ? SmallProduct() : nullptr, first_pulse) {
  clocks_.work = [this] { return pace_.Now(); };
  // A clock that is given says what is left of the time, too.
  clocks_.budget = clock ? clocks_.work : BudgetClock();
  clocks_.own_core = !clock && !threads.shared_cores && IsOneThreadOnCpu(device, threads);
}

}  // namespace penstock::worker
