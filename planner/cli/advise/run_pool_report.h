// What `penstock advise --strategies` prints of a run that there is (--from-run, --job).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/cli/advise/run_pool.h"

namespace penstock::cli {

// `resume`: "penstock up --resume --run-dir RUN", before the flag that switches; empty: who runs it is not
// known.
std::string RunPoolText(const MeasuredRun& run, const RunPoolAdvice& advice, const std::string& resume);
nlohmann::ordered_json RunPoolJson(const MeasuredRun& run, const RunPoolAdvice& advice,
                                   const std::string& resume);

}  // namespace penstock::cli
