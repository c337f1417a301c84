// absl::Status <-> grpc::Status. The codes of both are the same numbers; payloads stay behind (see rpc
// handlers).
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace penstock {

grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// The same for a call that nobody on this side cancels. A server that stops cancels what it has not begun, so
// that CANCELLED becomes UNAVAILABLE: try again.
absl::Status FromStatusOfCall(const grpc::Status& status);

// "OK", "INVALID_ARGUMENT", ... for logs and metric labels.
const char* GrpcCodeName(grpc::StatusCode code);

}  // namespace penstock
