// The reactor of calls that the planning pool answers: the pool computes, the client may give up at any time,
// Finish is called once.
//
//   return PooledCallReactor<v1::PlanBatchResponse>::Start(engine, response, [&](auto done) { return
//   engine->...; });
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/grpc/status_conversion.h"
#include "common/sync/sync.h"
#include "planner/service/rpc/engine_slot.h"

namespace penstock {

template <typename Response>
class PooledCallReactor final : public grpc::ServerUnaryReactor,
                                public std::enable_shared_from_this<PooledCallReactor<Response>> {
 public:
  using Done = std::function<void(absl::StatusOr<Response>)>;
  // Gives the call to the pool. Null: `done` was called at once.
  using Begin = std::function<PlanningTicketPtr(Done done)>;

  // Lives until the call is done.
  static grpc::ServerUnaryReactor* Start(EnginePtr engine, Response* response, const Begin& begin) {
    auto reactor = std::shared_ptr<PooledCallReactor>(new PooledCallReactor(std::move(engine), response));
    reactor->self_ = reactor;
    reactor->Keep(begin([reactor](absl::StatusOr<Response> answer) { reactor->End(std::move(answer)); }));
    return reactor.get();
  }

  // The client cancelled, or its deadline is over: nothing is computed any further.
  void OnCancel() override {
    PlanningTicketPtr ticket;
    {
      MutexLock lock(&mutex_);
      ticket = ticket_;
    }
    End(absl::CancelledError("the client cancelled, or its deadline is over"));
    if (ticket != nullptr) engine_->CancelWhatIf(ticket);
  }

  void OnDone() override { const auto self = std::move(self_); }

 private:
  PooledCallReactor(EnginePtr engine, Response* response) : engine_(std::move(engine)), response_(response) {}

  // True for the one caller that may write the response and finish.
  bool TakeEnd() {
    MutexLock lock(&mutex_);
    return !std::exchange(ended_, true);
  }

  void End(absl::StatusOr<Response> answer) {
    if (!TakeEnd()) return;
    const absl::Status status = answer.status();
    if (status.ok()) *response_ = *std::move(answer);
    this->Finish(ToGrpcStatus(status));
  }

  // Cancels the ticket if the call has ended already.
  void Keep(PlanningTicketPtr ticket) {
    if (ticket == nullptr) return;
    {
      MutexLock lock(&mutex_);
      ticket_ = ticket;
      if (!ended_) return;
    }
    engine_->CancelWhatIf(ticket);
  }

  const EnginePtr engine_;
  // gRPC's; valid until Finish.
  Response* const response_;
  std::shared_ptr<PooledCallReactor> self_;
  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  PlanningTicketPtr ticket_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
