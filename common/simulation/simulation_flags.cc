#include "common/simulation/simulation_flags.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "common/simulation/list_flag.h"

namespace penstock {
namespace {

constexpr const char* kFlags[] = {"--time-scale", "--noise", "--noise-seed", "--slow-rank",
                                  "--slow-link",  "--stall", "--host-stall"};

}  // namespace

void AddSimulationFlags(CLI::App& app, SimulationOptions& options) {
  app.add_option("--time-scale", options.time_scale,
                 "Simulated device: wall seconds for a simulated second; 0: as fast as possible")
      ->capture_default_str();
  app.add_option("--noise", options.noise,
                 "Simulated device: relative standard deviation of every duration, e.g. 0.05")
      ->capture_default_str();
  app.add_option("--noise-seed", options.noise_seed, "Simulated device: seed of the noise")
      ->capture_default_str();
  AddListFlag(app, "--slow-rank", options.slow_ranks, ParseSlowRank,
              "Simulated device: RANK:FACTOR, a rank whose computations take FACTOR times as long");
  AddListFlag(app, "--slow-link", options.slow_links, ParseSlowLink,
              "Simulated device: RANK-RANK:FACTOR, a link whose transfers take FACTOR times as long");
  AddListFlag(
      app, "--stall", options.stalls, ParseStall,
      "Simulated device: RANK:ITERATION:SECONDS, a rank that stands still for so many simulated seconds");
  AddListFlag(app, "--host-stall", options.host_stalls, ParseHostStall,
              "Simulated device: RANK:SECONDS, a rank whose host takes so long before each pass");
}

bool SimulationFlagsGiven(const CLI::App& app) {
  for (const char* flag : kFlags) {
    if (app.get_option(flag)->count() > 0) return true;
  }
  return false;
}

}  // namespace penstock
