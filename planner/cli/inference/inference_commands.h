// `penstock generate` and `penstock evaluate`.
#pragma once

#include "planner/cli/command_set.h"

namespace penstock::cli {

void AddGenerateCommand(CommandSet& commands);
void AddEvaluateCommand(CommandSet& commands);

}  // namespace penstock::cli
