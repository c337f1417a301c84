// What users and Hugging Face's configurations call the linear layers that adapters may be at.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// The layers that one name stands for: "q" or "q_proj", of layers that transformers makes as one all that
// they make ("c_attn": queries, keys and values), "all-linear": all that the model has. Possible errors:
// INVALID_ARGUMENT (lists the names).
absl::StatusOr<std::vector<v1::LinearLayer>> LinearLayersCalled(absl::string_view name,
                                                                const v1::ModelSpec& model);

// All that a model has, in the order of the contract.
std::vector<v1::LinearLayer> AllLinearLayers(const v1::ModelSpec& model);

// "q, k, v".
std::string NamesOf(const v1::Adapters& adapters);

}  // namespace penstock::cli
