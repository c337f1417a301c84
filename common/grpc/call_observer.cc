#include "common/grpc/call_observer.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/grpc/served_method.h"

namespace penstock {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

class ObservedCall final : public grpc::experimental::Interceptor {
 public:
  ObservedCall(const google::protobuf::MethodDescriptor* method, const CallObserver* observer)
      : method_(method), observer_(observer) {}

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
  const CallObserver* const observer_;
  const absl::Time start_ = absl::Now();
};

class ObserverFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit ObserverFactory(CallObserver observer) : observer_(std::move(observer)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* call) override {
    const auto* method = ServedMethod(*call);
    return method == nullptr ? nullptr : new ObservedCall(method, &observer_);
  }

 private:
  const CallObserver observer_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> ObserveCalls(CallObserver observer) {
  return std::make_unique<ObserverFactory>(std::move(observer));
}

}  // namespace penstock
