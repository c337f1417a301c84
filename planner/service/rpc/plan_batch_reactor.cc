#include "planner/service/rpc/plan_batch_reactor.h"

#include <utility>

#include "common/grpc/status_conversion.h"

namespace penstock {

namespace {

// "ipv4:10.0.0.5" of "ipv4:10.0.0.5:41234": each connection has a port of its own.
std::string HostOf(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

}  // namespace

grpc::ServerUnaryReactor* PlanBatchReactor::Start(EnginePtr engine, const std::string& peer,
                                                  const v1::PlanBatchRequest& request,
                                                  v1::PlanBatchResponse* response) {
  auto reactor = std::shared_ptr<PlanBatchReactor>(new PlanBatchReactor(std::move(engine), response));
  reactor->self_ = reactor;
  reactor->Keep(reactor->engine_->PlanBatch(
      request, HostOf(peer), [reactor](absl::StatusOr<v1::Plan> plan) { reactor->End(std::move(plan)); }));
  return reactor.get();
}

void PlanBatchReactor::Keep(PlanningTicketPtr ticket) {
  if (ticket == nullptr) return;
  {
    MutexLock lock(&mutex_);
    ticket_ = ticket;
    if (!ended_) return;
  }
  engine_->CancelPlanBatch(ticket);
}

bool PlanBatchReactor::TakeEnd() {
  MutexLock lock(&mutex_);
  return !std::exchange(ended_, true);
}

void PlanBatchReactor::End(absl::StatusOr<v1::Plan> plan) {
  if (!TakeEnd()) return;
  const absl::Status status = plan.status();
  if (status.ok()) *response_->mutable_plan() = *std::move(plan);
  Finish(ToGrpcStatus(status));
}

void PlanBatchReactor::OnCancel() {
  PlanningTicketPtr ticket;
  {
    MutexLock lock(&mutex_);
    ticket = ticket_;
  }
  End(absl::CancelledError("the client cancelled, or its deadline is over"));
  if (ticket != nullptr) engine_->CancelPlanBatch(ticket);
}

void PlanBatchReactor::OnDone() { const auto self = std::move(self_); }

}  // namespace penstock
