// The config.json that an export writes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct ExportedConfig {
  nlohmann::ordered_json config;
  // Its model_type.
  std::string family;
  // What differs from the configuration that the model came with: "dtype: \"float32\" (was \"bfloat16\")".
  std::vector<std::string> changes;
};

// The config.json that the model in `folder` (model_folder.h) came with (kept_files.h), with the number
// format that it is trained in and every other field as it was: how long samples were in training does not
// change what the model can read. A model that came with none, or is no longer the one that came, gets a new
// configuration. Possible errors: those of ReadFile, ModelOfConfig and ConfigOfModel.
absl::StatusOr<ExportedConfig> ConfigToExport(const std::string& folder, const v1::ModelSpec& model);

}  // namespace penstock::cli
