#include "common/grpc/served_method.h"

#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace penstock {
namespace {

using grpc::experimental::ServerRpcInfo;

// Null where the program has no descriptor of it, or no service has it.
const google::protobuf::MethodDescriptor* ServedMethod(const ServerRpcInfo& call) {
  // What no service of this server has comes as a generic call of both directions, as none of ours is.
  if (call.type() == ServerRpcInfo::Type::BIDI_STREAMING) return nullptr;
  return FindServedMethod(call.method());
}

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(MakeInterceptor make) : make_(std::move(make)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* call) override {
    const auto* method = ServedMethod(*call);
    return method == nullptr ? nullptr : make_(method);
  }

 private:
  const MakeInterceptor make_;
};

}  // namespace

const google::protobuf::MethodDescriptor* FindServedMethod(absl::string_view path) {
  // "penstock.v1.PlannerService.GetJob" of "/penstock.v1.PlannerService/GetJob".
  const std::string name = absl::StrReplaceAll(absl::StripPrefix(path, "/"), {{"/", "."}});
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> InterceptServedMethods(
    MakeInterceptor make) {
  return std::make_unique<Factory>(std::move(make));
}

}  // namespace penstock
