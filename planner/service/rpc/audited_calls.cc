#include "planner/service/rpc/audited_calls.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/grpc/status_conversion.h"

namespace penstock {

std::function<void(const absl::Status&)> AuditedCalls::Later(const grpc::CallbackServerContext& context,
                                                             const std::string& method,
                                                             const std::string& job) const {
  if (log_ == nullptr) return [](const absl::Status&) {};
  const Caller caller = access_.CallerOf(context);
  AuditRecord record = {.method = method, .address = context.peer(), .job = job};
  if (access_.knows_callers()) {
    record.role = std::string(RoleName(caller.role));
    record.owner = caller.owner;
  }
  return [log = log_, record = std::move(record)](const absl::Status& status) mutable {
    record.time = absl::Now();
    record.code = GrpcCodeName(static_cast<grpc::StatusCode>(status.code()));
    record.reason = std::string(status.message());
    record.refused = absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
    log->Write(record);
  };
}

void AuditedCalls::Ended(const grpc::CallbackServerContext& context, const std::string& method,
                         const std::string& job, const absl::Status& status) const {
  Later(context, method, job)(status);
}

}  // namespace penstock
