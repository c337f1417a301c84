// What the adapters of a model leave as it is: a folder whose model has adapters keeps it beside their
// checkpoints, which do not have it.
//
//   DIR/base/rank-*.safetensors           of a model folder (model_folder.h)
#pragma once

#include <string>

#include "absl/status/status.h"

namespace penstock::cli {

// Where `folder` keeps it, be it there or not.
std::string BaseFolder(const std::string& folder);

// Makes `folder` keep the checkpoint's files, and nothing else: as links, which take no room and stay when
// the checkpoint goes, where the file system has them. A folder that keeps them already stays as it is.
// Possible errors: those of LinkFiles.
absl::Status KeepBase(const std::string& checkpoint, const std::string& folder);

// Possible errors: UNAVAILABLE (names the folder).
absl::Status DropBase(const std::string& folder);

}  // namespace penstock::cli
