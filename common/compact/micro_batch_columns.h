// Micro-batches and samples of a StreamProgramsResponse in columns, and back (penstock/v1/compact.proto).
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/plan.pb.h"

namespace penstock {

using MicroBatches = google::protobuf::RepeatedPtrField<v1::MicroBatch>;
using Samples = google::protobuf::RepeatedPtrField<v1::Sample>;

// Nothing where columns do not have them all: indices of samples that do not count up, or more than
// kMostColumnBytes.
std::optional<std::string> PackMicroBatches(const MicroBatches& micro_batches, const Samples& samples);

// Appends what PackMicroBatches was given to two empty lists. `columns` may be anything.
// Possible errors: INVALID_ARGUMENT (names the column), RESOURCE_EXHAUSTED (more than kMostColumnBytes).
absl::Status UnpackMicroBatches(absl::string_view columns, MicroBatches* micro_batches, Samples* samples);

}  // namespace penstock
