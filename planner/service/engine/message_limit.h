// Whether an answer is small enough to be sent: gRPC's own refusal names neither what it is nor what to do.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

namespace penstock {

// `what`: "the program of iteration 3". `compact_version`: that of the reader.
// Possible errors: RESOURCE_EXHAUSTED (more than `most_bytes`).
absl::Status CheckMessage(absl::string_view what, const google::protobuf::MessageLite& message,
                          int64_t most_bytes, uint32_t compact_version);

}  // namespace penstock
