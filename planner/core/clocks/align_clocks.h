// Puts the clocks of ranks beside that of rank 0, from what they sent one another.
//
// An arrival cannot precede its start, whatever the clocks say. So the quickest message from one rank to
// another bounds how far the second's clock can be ahead, and one back bounds it from below; over others the
// bounds add up (shortest paths over difference constraints; Cormen et al., "Introduction to Algorithms",
// section 24.4). A clock is put in the middle of what is possible, as NTP does with one pair (Mills 1991,
// "Internet time synchronization"); dPRO (Hu et al. 2022, section 4.2) does it for constant offsets. How fast
// clocks drift apart is the slope of these middles over the iterations.
//
//   const std::vector<ClockSet> clocks = AlignClocks(ranks, messages_by_iteration);
//   int64_t aligned = clocks[i][rank].ToReference(time_ns);
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::core {

struct ClockMessage {
  uint32_t from = 0;
  uint32_t to = 0;
  // By the clock of `from`.
  int64_t started_ns = 0;
  // By the clock of `to`: it was there by then, at the latest.
  int64_t arrived_ns = 0;
};

// A rank's clock in an iteration: times by it are ahead of those by rank 0's by
//   offset_ns + drift * (time - since_ns).
struct RankClock {
  double offset_ns = 0;
  // Nanoseconds a nanosecond.
  double drift = 0;
  int64_t since_ns = 0;
  // The offset is off by at most so much, where messages took any time from 0 on.
  double uncertainty_ns = 0;
  // Messages lead from and to rank 0, over others perhaps. Otherwise the clock is left as it is.
  bool known = false;

  int64_t ToReference(int64_t time_ns) const;
};

using ClockSet = std::vector<RankClock>;

// By iteration, of so many ranks. Where no message of any iteration arrives before it starts, clocks agree
// and offsets are 0.
std::vector<ClockSet> AlignClocks(uint32_t ranks, const std::vector<std::vector<ClockMessage>>& iterations);

}  // namespace penstock::core
