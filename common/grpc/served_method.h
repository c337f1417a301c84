// The method that a server's call is to.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/server_interceptor.h>

namespace penstock {

// Null where the program has no descriptor of it, or no service has it.
const google::protobuf::MethodDescriptor* ServedMethod(const grpc::experimental::ServerRpcInfo& call);

}  // namespace penstock
