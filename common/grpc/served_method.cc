#include "common/grpc/served_method.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace penstock {

using grpc::experimental::ServerRpcInfo;

const google::protobuf::MethodDescriptor* ServedMethod(const ServerRpcInfo& call) {
  // What no service of this server has comes as a generic call of both directions, as none of ours is.
  if (call.type() == ServerRpcInfo::Type::BIDI_STREAMING) return nullptr;
  // "penstock.v1.PlannerService.GetJob" of "/penstock.v1.PlannerService/GetJob".
  const std::string name = absl::StrReplaceAll(absl::StripPrefix(call.method(), "/"), {{"/", "."}});
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
}

}  // namespace penstock
