#include "common/grpc/malformed_requests.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace penstock {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

// "penstock.v1.PlannerService.GetJob" of "/penstock.v1.PlannerService/GetJob"; null where there is none.
const google::protobuf::MethodDescriptor* MethodOf(const ServerRpcInfo& call) {
  const std::string name = absl::StrReplaceAll(absl::StripPrefix(call.method(), "/"), {{"/", "."}});
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
}

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

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* call) override {
    // What no service of this server has comes as a generic call of both directions, as none of ours is.
    if (call->type() == ServerRpcInfo::Type::BIDI_STREAMING) return nullptr;
    const auto* method = MethodOf(*call);
    return method == nullptr ? nullptr : new MalformedRequest(method);
  }
};

}  // namespace

void NameMalformedRequests(grpc::ServerBuilder* builder) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<Factory>());
  builder->experimental().SetInterceptorCreators(std::move(factories));
}

}  // namespace penstock
