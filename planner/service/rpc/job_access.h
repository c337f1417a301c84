// Which callers may call which methods, for which jobs.
//
//                 viewer      worker        client        operator
//   read          yes         yes           yes           yes         GetJob, ListJobs, GetIteration
//   run           -           its owner's   its owner's   yes         RegisterWorker, Heartbeat,
//   StreamPrograms, ReportIteration feed          -           -             its owner's   yes RegisterJob,
//   SubmitBatches, PlanBatch, ChangeStrategies, DrainJob, DeleteJob
//
// Jobs have the owner of the client that registered them; jobs without one are everybody's. Who has an owner
// reads that owner's jobs alone, but for operators; a viewer without one reads all.
#pragma once

#include <grpcpp/server_context.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grpc/security/access_control.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// AccessControl's. A method of another service of this server is operators' (reflection: readers', too).
bool MayCall(Role role, absl::string_view method);

// Thread-safe.
class JobAccess {
 public:
  // Null: everyone may do everything.
  explicit JobAccess(std::shared_ptr<const AccessControl> control) : control_(std::move(control)) {}

  // Whether the caller may see or change the job, as the method that it called does.
  // Possible errors: PERMISSION_DENIED (names the job).
  absl::Status Check(const grpc::CallbackServerContext& context, const v1::JobSpec& job) const;

  // The owner of a job that the caller registers and says to be `asked`'s (empty: says nothing).
  // Possible errors: PERMISSION_DENIED (names job.owner).
  absl::StatusOr<std::string> OwnerOf(const grpc::CallbackServerContext& context,
                                      const std::string& asked) const;

  // Whom the caller's questions are counted for: its owner, or, where nobody knows it, the host it calls
  // from.
  std::string PayerOfCaller(const grpc::CallbackServerContext& context) const;

  // Not so: everyone is an operator.
  bool knows_callers() const { return control_ != nullptr; }
  // For those who ask about many jobs.
  Caller CallerOf(const grpc::CallbackServerContext& context) const;
  static bool MayTouch(const Caller& caller, const v1::JobSpec& job);

 private:
  const std::shared_ptr<const AccessControl> control_;
};

}  // namespace penstock
