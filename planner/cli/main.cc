// `penstock`: the client.
#include "planner/cli/commands.h"
#include "planner/cli/inference/inference_commands.h"
#include "planner/cli/profile/profile_commands.h"
#include "planner/cli/store/store_commands.h"

int main(int argc, char** argv) {
  using namespace penstock::cli;  // NOLINT(google-build-using-namespace)
  CommandSet commands;
  AddUpCommand(commands);
  AddFeedCommand(commands);
  AddPlanCommand(commands);
  AddCompareCommand(commands);
  AddAdviseCommand(commands);
  AddVerifyCommand(commands);
  AddDiagnoseCommand(commands);
  AddTraceCommand(commands);
  AddDatasetCommands(commands);
  AddModelCommands(commands);
  AddProfileCommands(commands);
  AddGenerateCommand(commands);
  AddEvaluateCommand(commands);
  AddStatusCommands(commands);
  AddHealthCommand(commands);
  AddStrategiesCommand(commands);
  AddJobCommands(commands);
  AddBackupCommand(commands);
  AddRestoreCommand(commands);
  AddLogLevelCommand(commands);
  return commands.Run(argc, argv);
}
