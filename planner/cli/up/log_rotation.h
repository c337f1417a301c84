// Keeps the logs of a run's processes from filling the disk: what a process has written beyond a size moves
// to LOG.1 (before that: LOG.1 to LOG.2, and so on), and the process goes on writing to the same file, which
// it has open for appending and which is cut to nothing. What is written while the copy is made may be lost.
//
//   LogRotation rotation("runs/mix/logs");
//   rotation.Look(absl::Now());       // as often as you like
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace penstock::cli {

struct LogRotationOptions {
  uint64_t most_bytes = uint64_t{64} << 20;
  // Beside the log itself.
  int files = 2;
  absl::Duration every = absl::Seconds(10);
};

class LogRotation {
 public:
  explicit LogRotation(std::string folder, LogRotationOptions options = {})
      : folder_(std::move(folder)), options_(options) {}

  // Rotates the folder's *.log that are too large, at most every so often. What cannot be copied stays as it
  // is.
  void Look(absl::Time now);

 private:
  void Rotate(const std::string& log) const;

  const std::string folder_;
  const LogRotationOptions options_;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace penstock::cli
