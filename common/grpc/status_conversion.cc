#include "common/grpc/status_conversion.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace penstock {
namespace {

// By code, as https://grpc.github.io/grpc/core/md_doc_statuscodes.html numbers them.
constexpr std::array kCodeNames = {
    "OK",        "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED",
};

bool IsKnown(int code) { return code >= 0 && code < static_cast<int>(kCodeNames.size()); }

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = status.error_code();
  return absl::Status(IsKnown(code) ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      status.error_message());
}

absl::Status FromStatusOfCall(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::CANCELLED) return FromGrpcStatus(status);
  return absl::UnavailableError(
      absl::StrCat("the server cancelled the call, as one that stops does: ", status.error_message()));
}

const char* GrpcCodeName(grpc::StatusCode code) { return IsKnown(code) ? kCodeNames[code] : "UNKNOWN"; }

}  // namespace penstock
