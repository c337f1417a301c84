#include "common/grpc/malformed_requests.h"

#include "absl/strings/str_cat.h"
#include "common/grpc/served_method.h"

namespace penstock {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

// Of one call to a method that the server has: UNIMPLEMENTED without a word is gRPC's own.
class MalformedRequest final : public grpc::experimental::Interceptor {
 public:
  explicit MalformedRequest(const google::protobuf::MethodDescriptor* method) : method_(method) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty())
        methods->ModifySendStatus(Explanation());
    }
    methods->Proceed();
  }

 private:
  grpc::Status Explanation() const {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            absl::StrCat("the request is no ", method_->input_type()->full_name(),
                         ": its bytes are malformed, or a string is not UTF-8")};
  }

  const google::protobuf::MethodDescriptor* const method_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NameMalformedRequests() {
  return InterceptServedMethods([](const auto* method) { return new MalformedRequest(method); });
}

}  // namespace penstock
