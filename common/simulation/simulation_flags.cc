#include "common/simulation/simulation_flags.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace penstock {
namespace {

constexpr const char* kFlags[] = {"--time-scale", "--noise", "--noise-seed", "--slow-rank",
                                  "--slow-link",  "--stall", "--host-stall"};

// A flag that may be given several times; each value is read by `parse`.
template <typename Value>
void AddList(CLI::App& app, const std::string& flag, std::vector<Value>& values,
             absl::StatusOr<Value> (*parse)(const std::string&), const std::string& help) {
  app.add_option_function<std::vector<std::string>>(
         flag,
         [&values, parse](const std::vector<std::string>& texts) {
           values.clear();
           for (const std::string& text : texts) values.push_back(*parse(text));
         },
         help)
      ->check([parse](const std::string& text) {
        const absl::StatusOr<Value> value = parse(text);
        return value.ok() ? std::string() : std::string(value.status().message());
      })
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',');
}

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
  AddList(app, "--slow-rank", options.slow_ranks, ParseSlowRank,
          "Simulated device: RANK:FACTOR, a rank whose computations take FACTOR times as long");
  AddList(app, "--slow-link", options.slow_links, ParseSlowLink,
          "Simulated device: RANK-RANK:FACTOR, a link whose transfers take FACTOR times as long");
  AddList(app, "--stall", options.stalls, ParseStall,
          "Simulated device: RANK:ITERATION:SECONDS, a rank that stands still for so many simulated seconds");
  AddList(app, "--host-stall", options.host_stalls, ParseHostStall,
          "Simulated device: RANK:SECONDS, a rank whose host takes so long before each pass");
}

bool SimulationFlagsGiven(const CLI::App& app) {
  for (const char* flag : kFlags) {
    if (app.get_option(flag)->count() > 0) return true;
  }
  return false;
}

}  // namespace penstock
