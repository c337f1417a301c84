// What `penstock advise --from-run` and `--job` print.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/cli/advise/measured_run.h"
#include "planner/cli/advise/run_advice.h"

namespace penstock::cli {

// `resume`: "penstock up --resume --run-dir RUN", before the flags that switch; empty: who runs it is not
// known.
std::string RunAdviceText(const MeasuredRun& run, const RunAdvice& advice, const std::string& resume);
nlohmann::ordered_json RunAdviceJson(const MeasuredRun& run, const RunAdvice& advice,
                                     const std::string& resume);

}  // namespace penstock::cli
