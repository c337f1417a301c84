// The flags of `penstock up` that say what a job is: `penstock feed` has them, too.
//
//   AddJobFlags(*command, options);
//   ... parsed ...
//   PENSTOCK_RETURN_IF_ERROR(ReadJobFlags(*command, options));
#pragma once

#include <string>

#include "absl/status/status.h"
#include "planner/cli/up/up_options.h"

namespace CLI {
class App;
}

namespace penstock::cli {

// Data, mesh and planning, device, model, training. Both must outlive the parsing.
void AddJobFlags(CLI::App& command, UpOptions& up);

// --validation, --validate-every and --validation-samples. `otherwise`: what happens to --validation where it
// is not the ranks that find its loss.
void AddValidationFlags(CLI::App& command, const std::string& otherwise, UpOptions& up);

// Whether the model is given as a whole, and not by flags for its parts.
bool GivesWholeModel(const UpOptions& up);

// A later flag wins, but not of data: who names two datasets wants both. Possible errors: INVALID_ARGUMENT,
// naming the flag.
absl::Status CheckDataIsGivenOnce(const CLI::App& command);

// After the command line was parsed: takes what the options need of it, and refuses flags that would have no
// effect. Possible errors: INVALID_ARGUMENT, naming the flag.
absl::Status ReadJobFlags(const CLI::App& command, UpOptions& up);

}  // namespace penstock::cli
