#include "worker/device/simulated/memory_account.h"

#include <algorithm>

namespace penstock::worker {
namespace {

struct Change {
  int64_t at_ns = 0;
  int64_t bytes = 0;
};

// Of two at the same time, what is given back comes first: who takes it may have waited for it.
bool Earlier(const Change& a, const Change& b) {
  return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.bytes < b.bytes;
}

}  // namespace

int64_t PeakOfAccount(const Program& program, const std::vector<MeasuredInstruction>& measured) {
  std::vector<Change> changes;
  for (const MeasuredInstruction& times : measured) {
    const Instruction& instruction = program.instructions[times.id];
    changes.push_back({times.start_ns, instruction.memory_acquired_bytes});
    changes.push_back({times.start_ns + times.duration_ns, -instruction.memory_released_bytes});
  }
  std::sort(changes.begin(), changes.end(), Earlier);
  int64_t account = program.static_memory_bytes;
  int64_t peak = account;
  for (const Change& change : changes) peak = std::max(peak, account += change.bytes);
  return peak;
}

}  // namespace penstock::worker
