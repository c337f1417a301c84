// The commands of `penstock`, one file each.
#pragma once

#include "planner/cli/command_set.h"

namespace penstock::cli {

void AddPlanCommand(CommandSet& commands);
void AddCompareCommand(CommandSet& commands);
void AddAdviseCommand(CommandSet& commands);
void AddDiagnoseCommand(CommandSet& commands);
void AddTraceCommand(CommandSet& commands);
void AddVerifyCommand(CommandSet& commands);
// `dataset import`, `dataset info` and `dataset lengths`.
void AddDatasetCommands(CommandSet& commands);
// `model import`, `model export` and `model info`.
void AddModelCommands(CommandSet& commands);
void AddUpCommand(CommandSet& commands);
void AddFeedCommand(CommandSet& commands);
// `status`, `jobs` and `workers`.
void AddStatusCommands(CommandSet& commands);

void AddHealthCommand(CommandSet& commands);
void AddLogLevelCommand(CommandSet& commands);

void AddStrategiesCommand(CommandSet& commands);
// `drain` and `delete`.
void AddJobCommands(CommandSet& commands);

}  // namespace penstock::cli
