// Hugging Face's config.json as Penstock's description of a model: of the families of family_names.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/model/family_names.h"

namespace penstock::cli {

struct HuggingFaceModel {
  // One of family_names.h.
  std::string family;
  // Its max_sequence_length is the longest that the configuration names, and of a T5, whose positions have no
  // end, 0. Its number format is that of the weights.
  v1::ModelSpec spec;
  // Of training: what configurations say of it is not done, as Penstock has no dropout. Empty: nothing is
  // lost.
  std::string dropout;
};

// `name` is the file's, for errors.
// Possible errors: INVALID_ARGUMENT (a field that is missing, of a value that Penstock has no model for, or
// unknown: names file and field).
absl::StatusOr<HuggingFaceModel> ModelOfConfig(const std::string& name, const nlohmann::json& config);

// Reads the file; of a folder its config.json. Possible errors: those of ReadFile and ModelOfConfig.
absl::StatusOr<HuggingFaceModel> ReadHuggingFaceConfig(const std::string& path);

// Makes a T5 whose tied head is not scaled one with a head of its own: its configuration fits both.
void UntieHead(v1::ModelSpec& model);

// The way back, for a model that has no config.json of its own. transformers reads it.
// Possible errors: INVALID_ARGUMENT (no family there is like this model: names the field).
absl::StatusOr<nlohmann::ordered_json> ConfigOfModel(const v1::ModelSpec& model);

// "bfloat16", as configurations name it.
const char* DataTypeName(v1::DataType type);

// The family that `model` is most like: one of family_names.h. Of a Mistral or a Phi-3 without a window and
// with whole heads that turn it is Llama, from which they do not differ in what is computed.
std::string FamilyOf(const v1::ModelSpec& model);

}  // namespace penstock::cli
