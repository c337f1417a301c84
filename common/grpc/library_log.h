// What gRPC's library has to say, in this program's log.
//
// A stranger makes it say something with every connection, in the stranger's own bytes: lines are quoted, so
// that they are no lines of ours, and beyond so many in a while they are counted and left out, so that nobody
// fills the disk.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace penstock {

// From now on, for the whole process; once. Until then gRPC writes to stderr by itself.
void LogWhatGrpcSays();

// Lets through so many of a window of time. Thread-safe where its users take turns.
class LineLimit {
 public:
  LineLimit(uint64_t most, absl::Duration window) : most_(most), window_(window) {}

  // Nothing: the line is to be left out. Otherwise how many were left out since the last that was not.
  std::optional<uint64_t> Take(absl::Time now);

 private:
  const uint64_t most_;
  const absl::Duration window_;
  absl::Time window_end_ = absl::InfinitePast();
  uint64_t taken_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace penstock
