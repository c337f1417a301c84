#include "common/grpc/trailing_metadata.h"

#include "absl/strings/numbers.h"

namespace penstock {

std::optional<std::string> TrailingMetadataOf(const grpc::ClientContext& context, const char* key) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  return std::string(found->second.data(), found->second.size());
}

std::optional<uint64_t> TrailingNumberOf(const grpc::ClientContext& context, const char* key) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(TrailingMetadataOf(context, key).value_or(""), &number)) return std::nullopt;
  return number;
}

}  // namespace penstock
