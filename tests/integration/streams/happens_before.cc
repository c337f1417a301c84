#include "tests/integration/streams/happens_before.h"

#include <algorithm>
#include <map>

namespace penstock::worker {

// Vector clocks (Mattern, "Virtual time and global states of distributed systems", 1989), one for each
// stream.
HappensBefore::HappensBefore(const Program& program, const Recording& recording)
    : program_(program), known_(program.instructions.size()) {
  const auto count = static_cast<Mark>(program.instructions.size());
  std::array<Clock, kStreamCount> clocks = {};
  std::vector<Clock> at_end(count);
  // Of marks that no instruction ends with: what is done beside one waits for them.
  std::map<Mark, Clock> within;
  std::vector<uint32_t> waited;
  for (const Recorded& recorded : recording) {
    Clock& clock = clocks[static_cast<size_t>(recorded.stream)];
    const bool ends = recorded.mark < count;
    if (recorded.call == Call::kSet && !ends) within[recorded.mark] = clock;
    if (recorded.call == Call::kWaitFor) {
      if (ends) waited.push_back(recorded.mark);
      const Clock& from = ends ? at_end[recorded.mark] : within[recorded.mark];
      for (size_t i = 0; i < kStreamCount; ++i) clock[i] = std::max(clock[i], from[i]);
    }
    if (recorded.call != Call::kSet || !ends) continue;
    for (const uint32_t from : waited) edges_.push_back({from, recorded.mark});
    waited.clear();
    known_[recorded.mark] = clock;
    clock[static_cast<size_t>(recorded.stream)] = recorded.mark + 1;
    at_end[recorded.mark] = clock;
  }
}

bool HappensBefore::Ordered(uint32_t earlier, uint32_t later) const {
  const auto stream = static_cast<size_t>(program_.instructions[earlier].stream);
  return known_[later][stream] > earlier;
}

}  // namespace penstock::worker
