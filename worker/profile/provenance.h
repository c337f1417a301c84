// Where the figures of a measured profile come from, for its comment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace penstock::worker {

struct Provenance {
  // "cpu" or "cuda:N", as the worker was given it.
  std::string device = "cpu";
  int threads = 1;
  bool shared_cores = false;
  // That measured at the same time, this one among them.
  uint32_t workers = 1;
  // Shares of which context ranks were measured too.
  std::vector<uint32_t> contexts = {};
  // Of the worker; empty: not known.
  std::string compiler = {};
  // Of LibTorch.
  std::string libtorch = {};
  absl::Time measured_at = absl::UnixEpoch();
  // Median distance of repeats from their median, as a share of it.
  double spread = 0;
  // Of a measured profile; empty: bytes are what is counted.
  std::string memory_differences = {};
  std::string disturbance = {};
};

// "Intel(R) Xeon(R) CPU @ 2.20GHz", of /proc/cpuinfo; of a GPU its model and the driver's version, as the
// driver says below `proc`. "unknown" where they say nothing.
std::string HardwareOf(const std::string& device, const std::string& proc = "/proc");

// "measured by penstock-worker profile 0.1.0 (...) on 2026-11-26 with 1 thread of ..., one of 2 workers side
// by side, LibTorch 2.11.0, g++ 12.2.0; ...": one line. What disturbed the measurement stands at its end
// (common/held_out/disturbance.h).
std::string CommentOf(const Provenance& provenance, const std::string& hardware);

}  // namespace penstock::worker
