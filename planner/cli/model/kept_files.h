// What a Hugging Face checkpoint holds beside its weights: configurations, tokenizer, licence. A model that
// is imported keeps it, so does a run that begins with the model, and its export has it again.
//
//   DIR/hugging_face/config.json, tokenizer.json, ...       of a model folder (model_folder.h)
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock::cli {

// Where `folder` keeps a file of this name, be it there or not.
std::string KeptFile(const std::string& folder, const std::string& name);

struct KeptFiles {
  // Sorted names.
  std::vector<std::string> kept;
  // Too large to be anything but weights of another kind.
  std::vector<std::string> left_out;
};

// Copies what lies in `from`, a folder of Hugging Face's, beside weights and folders. Links are followed, as
// the cache of huggingface_hub has them. Possible errors: those of the file system; all name the file.
absl::StatusOr<KeptFiles> KeepFiles(const std::string& from, const std::string& folder);

// Removes what `folder` keeps. Possible errors: as above.
absl::Status DropKeptFiles(const std::string& folder);

// Makes `folder` keep what `other` keeps, and nothing else. Possible errors: as above.
absl::Status KeepFilesOf(const std::string& other, const std::string& folder);

// Copies all but config.json to `to`, which is there; returns their names. Possible errors: as above.
absl::StatusOr<std::vector<std::string>> ReturnKeptFiles(const std::string& folder, const std::string& to);

}  // namespace penstock::cli
