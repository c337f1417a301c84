// `penstock profile measure` and `penstock profile check`: cost profiles made and tried on this machine.
#pragma once

#include "planner/cli/command_set.h"

namespace penstock::cli {

// Below the command `profile`.
void AddMeasureCommands(CommandSet& commands, CLI::App* profile);

}  // namespace penstock::cli
