#include "planner/service/rpc/register_job_reactor.h"

#include <utility>

#include "common/grpc/status_conversion.h"

namespace penstock {

grpc::ServerUnaryReactor* RegisterJobReactor::Start(EnginePtr engine, const v1::JobSpec& job,
                                                    v1::RegisterJobResponse* response,
                                                    std::function<void(const absl::Status&)> ended) {
  auto reactor = std::shared_ptr<RegisterJobReactor>(
      new RegisterJobReactor(std::move(engine), response, std::move(ended)));
  reactor->self_ = reactor;
  PlannerEngine::Registration registration = reactor->engine_->RegisterJob(
      job, [weak = std::weak_ptr<RegisterJobReactor>(reactor)](const absl::StatusOr<v1::JobState>& state) {
        if (const auto reactor = weak.lock()) reactor->Answer(state);
      });
  bool gone = false;
  {
    MutexLock lock(&reactor->mutex_);
    reactor->registration_ = registration;
    gone = reactor->cancelled_;
  }
  if (gone) reactor->engine_->StopWaiting(registration);
  return reactor.get();
}

void RegisterJobReactor::Answer(const absl::StatusOr<v1::JobState>& state) {
  if (state.ok()) {
    MutexLock lock(&mutex_);
    if (!ended_) response_->set_state(*state);
  }
  End(state.status());
}

void RegisterJobReactor::End(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(ended_, true)) return;
  }
  ended_with_(status);
  Finish(ToGrpcStatus(status));
}

void RegisterJobReactor::OnCancel() {
  PlannerEngine::Registration registration;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    registration = registration_;
  }
  // Before the end of the call, whoever waits for it: then nothing goes on for it any more.
  engine_->StopWaiting(registration);
  End(absl::CancelledError("the client cancelled, or its deadline is over"));
}

void RegisterJobReactor::OnDone() { const auto self = std::move(self_); }

}  // namespace penstock
