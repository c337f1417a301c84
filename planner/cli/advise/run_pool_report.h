// What `penstock advise --strategies` prints of a run that there is (--from-run, --job).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/cli/advise/run_pool.h"

namespace penstock::cli {

// The commands that switch, before what they switch to.
struct SwitchCommands {
  // "penstock strategies --run-dir RUN": while it runs. Empty: a job without strategies cannot.
  std::string change = {};
  // "penstock up --resume --run-dir RUN"; empty: who runs it is not known.
  std::string resume = {};
};

std::string RunPoolText(const MeasuredRun& run, const RunPoolAdvice& advice, const SwitchCommands& commands);
nlohmann::ordered_json RunPoolJson(const MeasuredRun& run, const RunPoolAdvice& advice,
                                   const SwitchCommands& commands);

}  // namespace penstock::cli
