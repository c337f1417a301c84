// `penstock profile analytic`: cost profiles by formulas, of machines that are not there.
#pragma once

#include "planner/cli/command_set.h"

namespace penstock::cli {

// Below the command `profile`.
void AddAnalyticCommand(CommandSet& commands, CLI::App* profile);

}  // namespace penstock::cli
