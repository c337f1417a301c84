// `penstock profile`.
#pragma once

#include "planner/cli/command_set.h"

namespace penstock::cli {

void AddProfileCommands(CommandSet& commands);

}  // namespace penstock::cli
