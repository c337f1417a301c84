#include "planner/cli/model/exported_config.h"

#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/hugging_face_config.h"
#include "planner/cli/model/kept_files.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

// But for its longest sequence and number format.
bool IsTheSame(v1::ModelSpec one, v1::ModelSpec other) {
  for (v1::ModelSpec* model : {&one, &other}) {
    model->clear_max_sequence_length();
    model->clear_dtype();
  }
  return google::protobuf::util::MessageDifferencer::Equals(one, other);
}

void SetDataType(const v1::ModelSpec& model, ExportedConfig& exported) {
  // transformers 5 writes `dtype`, those before it `torch_dtype`.
  const bool old = exported.config.contains("torch_dtype") && !exported.config.contains("dtype");
  const char* const field = old ? "torch_dtype" : "dtype";
  const Json type = DataTypeName(model.dtype());
  const Json before = exported.config.contains(field) ? exported.config[field] : Json();
  exported.config[field] = type;
  exported.changes.push_back(absl::StrCat(field, ": ", type.dump(), " (was ", before.dump(), ")"));
}

}  // namespace

absl::StatusOr<ExportedConfig> ConfigToExport(const std::string& folder, const v1::ModelSpec& model) {
  const std::string file = KeptFile(folder, "config.json");
  const absl::StatusOr<std::string> text = ReadFile(file);
  ExportedConfig exported;
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  if (text.ok()) {
    exported.config = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    PENSTOCK_ASSIGN_OR_RETURN(HuggingFaceModel came, ModelOfConfig(file, nlohmann::json(exported.config)));
    if (came.spec.unscaled_head() && !model.tied_head()) UntieHead(came.spec);
    if (IsTheSame(came.spec, model)) {
      exported.family = came.family;
      if (came.spec.dtype() != model.dtype()) SetDataType(model, exported);
      return exported;
    }
    exported.changes.emplace_back("all of it: the model is another one");
  }
  exported.family = FamilyOf(model);
  PENSTOCK_ASSIGN_OR_RETURN(exported.config, ConfigOfModel(model));
  return exported;
}

}  // namespace penstock::cli
