// What Llama and those that came after it have, in the same fields.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/model/written/family_parts.h"

namespace penstock::cli {

// `architecture`: the class. Possible errors: INVALID_ARGUMENT (names the field that the family has not).
absl::StatusOr<nlohmann::ordered_json> LikeALlama(const v1::ModelSpec& model, const std::string& family,
                                                  const std::string& architecture,
                                                  const FamilyParts& has = {});

// The experts of every layer, as Qwens and OLMoE name them.
void AddExperts(const v1::ModelSpec& model, nlohmann::ordered_json& config);

// How positions turn, as transformers 5 names it.
nlohmann::ordered_json RopeParameters(const v1::RotaryPosition& rotary);

}  // namespace penstock::cli
