// What a recording orders: by which waits, and what has ended for sure when an instruction begins.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/integration/streams/recording.h"
#include "worker/program/program.h"

namespace penstock::worker {

// A stream waited for the end of `from` on behalf of `to`.
struct Edge {
  uint32_t from = 0;
  uint32_t to = 0;
};

class HappensBefore {
 public:
  HappensBefore(const Program& program, const Recording& recording);

  const std::vector<Edge>& edges() const { return edges_; }
  // Whether `earlier` has ended, whatever the speed of the streams, when `later` does its work.
  bool Ordered(uint32_t earlier, uint32_t later) const;

 private:
  // By stream: how many of its instructions' ids are known to have ended (all below it).
  using Clock = std::array<uint32_t, kStreamCount>;

  const Program& program_;
  std::vector<Edge> edges_;
  // By instruction, just before its end is marked.
  std::vector<Clock> known_;
};

}  // namespace penstock::worker
