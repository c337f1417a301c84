// What operators do with a planner's store.
#pragma once

#include "planner/cli/command_set.h"

namespace penstock::cli {

void AddBackupCommand(CommandSet& commands);
void AddRestoreCommand(CommandSet& commands);

}  // namespace penstock::cli
