// The reactor of RegisterJob: preparing the job may take minutes, the client may give up at any time, Finish
// is called once.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/sync/sync.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/rpc/engine_slot.h"

namespace penstock {

class RegisterJobReactor final : public grpc::ServerUnaryReactor,
                                 public std::enable_shared_from_this<RegisterJobReactor> {
 public:
  // Lives until the call is done.
  static grpc::ServerUnaryReactor* Start(EnginePtr engine, const v1::JobSpec& job,
                                         v1::RegisterJobResponse* response,
                                         std::function<void(const absl::Status&)> ended);

  // The client cancelled, or its deadline is over: nobody prepares the job for it any more.
  void OnCancel() override;
  void OnDone() override;

 private:
  RegisterJobReactor(EnginePtr engine, v1::RegisterJobResponse* response,
                     std::function<void(const absl::Status&)> ended)
      : engine_(std::move(engine)), response_(response), ended_with_(std::move(ended)) {}

  void Answer(const absl::StatusOr<v1::JobState>& state);
  void End(const absl::Status& status);

  const EnginePtr engine_;
  // gRPC's; valid until Finish.
  v1::RegisterJobResponse* const response_;
  const std::function<void(const absl::Status&)> ended_with_;
  std::shared_ptr<RegisterJobReactor> self_;
  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  PlannerEngine::Registration registration_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
