// The flags of a command line as values that can be kept, and given again later.
//
//   const FlagValues given = GivenFlags(command);          // {"--lr": ["0.01"], "--resume": ["true"]}
//   PENSTOCK_RETURN_IF_ERROR(GiveFlags(kept, command));    // those that this command line does not have
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace penstock::cli {

using FlagValues = std::map<std::string, std::vector<std::string>>;

// After the command line was parsed.
FlagValues GivenFlags(const CLI::App& command);

// Sets the flags that were not given, as if they had been. Possible errors: INVALID_ARGUMENT (a flag that the
// command does not have, or a value that it does not take; names the flag).
absl::Status GiveFlags(const FlagValues& values, CLI::App& command);

}  // namespace penstock::cli
