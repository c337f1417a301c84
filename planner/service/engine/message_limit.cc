#include "planner/service/engine/message_limit.h"

#include "absl/strings/str_cat.h"
#include "common/compact/instruction_columns.h"

namespace penstock {

absl::Status CheckMessage(absl::string_view what, const google::protobuf::MessageLite& message,
                          int64_t most_bytes, uint32_t compact_version) {
  const auto bytes = static_cast<int64_t>(message.ByteSizeLong());
  if (bytes <= most_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " is a message of ", bytes, " bytes, and ", most_bytes, " are the most: ",
      compact_version >= kCompactVersion
          ? "use fewer samples in a batch"
          : "a reader of compact programs (compact_version, penstock/v1/compact.proto) is sent far fewer"));
}

}  // namespace penstock
