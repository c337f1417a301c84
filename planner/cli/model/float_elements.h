// Elements of safetensors files as numbers: for the few places that compute with them without LibTorch.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planner/cli/model/tensor_set.h"

namespace penstock::cli {

// The whole tensor's data as it is stored. Possible errors: those of FoundTensor::Read.
absl::StatusOr<std::string> ReadBytes(const FoundTensor& tensor);

// `bytes`: elements of a type of the format: "F64", "F32", "BF16" or "F16". Exact.
std::vector<double> ToDoubles(absl::string_view bytes, absl::string_view type);
// The nearest numbers of the type, halves to even.
std::string FromDoubles(const std::vector<double>& values, absl::string_view type);

}  // namespace penstock::cli
