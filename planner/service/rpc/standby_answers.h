// Questions about jobs, answered by a planner that does not lead: from the store, with the leader and the age
// of the answer in trailing metadata (penstock/client/standby.h). Who may ask is as on the leader.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>

#include "absl/status/status.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/rpc/job_access.h"
#include "planner/service/standby/standby_reader.h"

namespace penstock {

// Thread-safe.
class StandbyAnswers {
 public:
  // `reader`: null, nothing is answered; else not owned.
  StandbyAnswers(StandbyReader* reader, JobAccess access) : reader_(reader), access_(std::move(access)) {}

  // The methods of the service, of a request that is well-formed. `refusal`: what is answered where the store
  // cannot be read; names the leader, where there is one.
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response, const absl::Status& refusal) const;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, v1::ListJobsResponse* response,
                                     const absl::Status& refusal) const;

 private:
  // Fills the response of a call.
  using Answer = std::function<absl::Status(const StoredJobs& jobs)>;
  grpc::ServerUnaryReactor* FromStore(grpc::CallbackServerContext* context, const absl::Status& refusal,
                                      Answer answer) const;

  StandbyReader* const reader_;
  const JobAccess access_;
};

// Has the trailing metadata name the leader that a refusal names.
void NameLeader(grpc::CallbackServerContext* context, const absl::Status& refusal);

}  // namespace penstock
