// The adapters of a model to a folder that PEFT opens beside the model that they adapt.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "planner/cli/model/export_model.h"
#include "planner/cli/model/model_folder.h"

namespace penstock::cli {

// `family`: as of CheckpointNames. Possible errors: ALREADY_EXISTS (there are adapters), INVALID_ARGUMENT (a
// checkpoint of another model: names the tensor), those of the file system.
absl::StatusOr<ExportedModel> ExportAdapters(const ModelFolder& folder, const std::string& family,
                                             const std::string& to);

}  // namespace penstock::cli
