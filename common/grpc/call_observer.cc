#include "common/grpc/call_observer.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/grpc/served_method.h"

namespace penstock {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

class ObservedCall final : public grpc::experimental::Interceptor {
 public:
  ObservedCall(const google::protobuf::MethodDescriptor* method, std::shared_ptr<const CallObserver> observer)
      : method_(method), observer_(std::move(observer)) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      (*observer_)({.method = method_->name(),
                    .code = methods->GetSendStatus().error_code(),
                    .duration = absl::Now() - start_,
                    .streams = method_->client_streaming() || method_->server_streaming()});
    }
    methods->Proceed();
  }

 private:
  const google::protobuf::MethodDescriptor* const method_;
  const std::shared_ptr<const CallObserver> observer_;
  const absl::Time start_ = absl::Now();
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> ObserveCalls(CallObserver observer) {
  const auto shared = std::make_shared<const CallObserver>(std::move(observer));
  return InterceptServedMethods([shared](const auto* method) { return new ObservedCall(method, shared); });
}

}  // namespace penstock
