#include "planner/cli/profile/measured_model.h"

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/hugging_face_config.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/profile_file.h"

namespace penstock::cli {
namespace {

// Of `penstock up`.
constexpr uint32_t kUsualLength = 2048;

absl::StatusOr<v1::ModelSpec> ReadAnyModel(const std::string& path) {
  if (HasModel(path)) return ReadModel(path);
  const absl::StatusOr<HuggingFaceModel> model = ReadHuggingFaceConfig(path);
  if (model.ok()) return model->spec;
  const absl::StatusOr<v1::ProfileFile> profile = ReadProfileFile("--model", path);
  // A file that is neither is more likely meant to be a configuration.
  if (!profile.ok()) return AnnotateError(model.status(), "--model");
  return profile->model();
}

}  // namespace

absl::StatusOr<v1::ModelSpec> ReadMeasuredModel(const std::string& path, uint32_t max_length) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::ModelSpec model, ReadAnyModel(path));
  const bool learned =
      model.architecture() != v1::ARCHITECTURE_T5 &&
      (model.position() == v1::POSITION_LEARNED || model.position() == v1::POSITION_UNSPECIFIED);
  if (learned && max_length > model.max_sequence_length()) {
    return absl::InvalidArgumentError(absl::StrCat("--max-length ", max_length, ": the model has ",
                                                   model.max_sequence_length(), " learned positions"));
  }
  if (max_length > 0) model.set_max_sequence_length(max_length);
  if (model.max_sequence_length() == 0) model.set_max_sequence_length(kUsualLength);
  return model;
}

}  // namespace penstock::cli
