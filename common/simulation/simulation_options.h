// What a job on simulated devices runs at and is disturbed by: the pace, noise, slow ranks and links, stalls.
// Everything is a function of these values: the same options, the same times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

// Every computation of `rank` takes `factor` times as long.
struct SlowRank {
  uint32_t rank = 0;
  double factor = 1;
};

// Every transfer between the two ranks, in both directions, takes `factor` times as long; so does the
// reduction of gradients of a group that holds both.
struct SlowLink {
  uint32_t a = 0;
  uint32_t b = 0;
  double factor = 1;
};

// The first computation of `rank` in the iteration takes so much longer, simulated seconds.
struct Stall {
  uint32_t rank = 0;
  uint64_t iteration = 0;
  double seconds = 0;
};

// The host of `rank` takes so much longer before each pass, simulated seconds: no instruction says so.
struct HostStall {
  uint32_t rank = 0;
  double seconds = 0;
};

struct SimulationOptions {
  // Wall seconds for a simulated second; 0: as fast as the machine can. Changes no simulated time.
  double time_scale = 1;
  // Relative standard deviation of every computation, transfer and reduction, and what it is drawn from.
  double noise = 0;
  uint64_t noise_seed = 0;
  std::vector<SlowRank> slow_ranks = {};
  std::vector<SlowLink> slow_links = {};
  std::vector<Stall> stalls = {};
  std::vector<HostStall> host_stalls = {};
};

// "3:1.5", "2-3:4", "5:10:2.5", "5:0.01". Possible errors: INVALID_ARGUMENT, naming the flag and the form it
// takes.
absl::StatusOr<SlowRank> ParseSlowRank(const std::string& text);
absl::StatusOr<SlowLink> ParseSlowLink(const std::string& text);
absl::StatusOr<Stall> ParseStall(const std::string& text);
absl::StatusOr<HostStall> ParseHostStall(const std::string& text);

// Whether all values are in their ranges and every rank that they name is one of the job's.
// Possible errors: INVALID_ARGUMENT, naming the flag.
absl::Status CheckSimulation(const SimulationOptions& options, uint32_t ranks);

// The flags that say the same (simulation_flags.h), to be passed on to a worker.
std::vector<std::string> SimulationArguments(const SimulationOptions& options);

}  // namespace penstock
