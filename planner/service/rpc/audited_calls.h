// What the audit log says of a call: its caller, and how it ended.
#pragma once

#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "planner/service/audit/audit_log.h"
#include "planner/service/rpc/job_access.h"

namespace penstock {

// Thread-safe.
class AuditedCalls {
 public:
  // `log`: null, nothing is written; else it must outlive this object.
  AuditedCalls(AuditLog* log, JobAccess access) : log_(log), access_(std::move(access)) {}

  void Ended(const grpc::CallbackServerContext& context, const std::string& method, const std::string& job,
             const absl::Status& status) const;
  // To be called with the status, for a call that ends when its context may be gone.
  std::function<void(const absl::Status&)> Later(const grpc::CallbackServerContext& context,
                                                 const std::string& method, const std::string& job) const;

 private:
  AuditLog* const log_;
  const JobAccess access_;
};

}  // namespace penstock
