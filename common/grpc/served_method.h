// Interceptors of calls to methods that a server has.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>

#include "absl/strings/string_view.h"

namespace penstock {

// Of "/package.Service/Method"; null where the program has no descriptor of it.
const google::protobuf::MethodDescriptor* FindServedMethod(absl::string_view path);

// Makes an interceptor, which gRPC owns, of each call to a method; called by any thread.
using MakeInterceptor =
    std::function<grpc::experimental::Interceptor*(const google::protobuf::MethodDescriptor* method)>;

// Calls to methods of which the program has no descriptor, or that no service has, are left alone.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> InterceptServedMethods(
    MakeInterceptor make);

}  // namespace penstock
