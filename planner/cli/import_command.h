// `penstock dataset import`: makes a token dataset of files.
#pragma once

#include "planner/cli/command_set.h"

namespace CLI {
class App;
}

namespace penstock::cli {

// Below `penstock dataset`.
void AddDatasetImport(CommandSet& commands, CLI::App* parent);

}  // namespace penstock::cli
