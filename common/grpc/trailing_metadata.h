// What a server has said behind the answer to a call.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <optional>
#include <string>

namespace penstock {

// After the call has ended. The first of this key.
std::optional<std::string> TrailingMetadataOf(const grpc::ClientContext& context, const char* key);
// The same as a number; nothing where it is none.
std::optional<uint64_t> TrailingNumberOf(const grpc::ClientContext& context, const char* key);

}  // namespace penstock
