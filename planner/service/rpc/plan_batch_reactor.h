// The reactor of PlanBatch: the planning pool computes, the client may give up at any time, Finish is called
// once.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/sync/sync.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/rpc/engine_slot.h"

namespace penstock {

class PlanBatchReactor final : public grpc::ServerUnaryReactor,
                               public std::enable_shared_from_this<PlanBatchReactor> {
 public:
  // Lives until the call is done. `peer`: gRPC's name of the client; clients of one host share its turns.
  static grpc::ServerUnaryReactor* Start(EnginePtr engine, const std::string& peer,
                                         const v1::PlanBatchRequest& request,
                                         v1::PlanBatchResponse* response);

  // The client cancelled, or its deadline is over: the plan is computed no further.
  void OnCancel() override;
  void OnDone() override;

 private:
  PlanBatchReactor(EnginePtr engine, v1::PlanBatchResponse* response)
      : engine_(std::move(engine)), response_(response) {}

  // True for the one caller that may write the response and finish.
  bool TakeEnd();
  void End(absl::StatusOr<v1::Plan> plan);
  // Cancels the ticket if the call has ended already.
  void Keep(PlanningTicketPtr ticket);

  const EnginePtr engine_;

  // gRPC's; valid until Finish.
  v1::PlanBatchResponse* const response_;
  std::shared_ptr<PlanBatchReactor> self_;
  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  PlanningTicketPtr ticket_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
