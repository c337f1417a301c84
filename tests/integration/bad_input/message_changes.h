// Small changes of a valid message, as a row of the table writes them, separated by ';':
//
//   job.mesh.pipeline = 0                    a field; values as in protobuf's text format
//   job.planning.layers_per_stage = [1, 7]   all elements of a repeated field
//   batches[1].samples[3].target_tokens = 0  inside an element
//   batch.samples[0] * 5                     the element so many times; job.job_id * 129: the same of a
//   string !job.planning.policy                     cleared
#pragma once

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Possible errors: INVALID_ARGUMENT (names the change that is not understood).
absl::Status ApplyChanges(absl::string_view changes, google::protobuf::Message* message);

}  // namespace penstock
