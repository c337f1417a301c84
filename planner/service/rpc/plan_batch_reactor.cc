#include "planner/service/rpc/plan_batch_reactor.h"

#include <utility>

#include "common/grpc/status_conversion.h"

namespace penstock {

grpc::ServerUnaryReactor* PlanBatchReactor::Start(PlannerEngine* engine, const v1::PlanBatchRequest& request,
                                                  v1::PlanBatchResponse* response, Done done) {
  auto reactor = std::shared_ptr<PlanBatchReactor>(new PlanBatchReactor(response, std::move(done)));
  reactor->self_ = reactor;
  engine->PlanBatch(
      request, [reactor] { return reactor->ended(); },
      [reactor](absl::StatusOr<v1::Plan> plan) { reactor->End(std::move(plan)); });
  return reactor.get();
}

bool PlanBatchReactor::TakeEnd() {
  MutexLock lock(&mutex_);
  return !std::exchange(ended_, true);
}

bool PlanBatchReactor::ended() const {
  MutexLock lock(&mutex_);
  return ended_;
}

void PlanBatchReactor::End(absl::StatusOr<v1::Plan> plan) {
  if (!TakeEnd()) return;
  const absl::Status status = plan.status();
  if (status.ok()) *response_->mutable_plan() = *std::move(plan);
  code_ = static_cast<grpc::StatusCode>(status.code());
  Finish(ToGrpcStatus(status));
}

void PlanBatchReactor::OnCancel() {
  End(absl::CancelledError("the client cancelled, or its deadline is over"));
}

void PlanBatchReactor::OnDone() {
  const auto self = std::move(self_);
  done_(code_);
}

}  // namespace penstock
