// What clients are told whose request cannot be read.
//
// gRPC's callback API answers bytes that are not the method's request, or that hold a string that is not
// UTF-8, with UNIMPLEMENTED and no message, as if the server lacked the method. With this the answer is
// INVALID_ARGUMENT and names the message that was expected.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

namespace penstock {

// Methods without a descriptor in the program, and those that no service has, are answered as before.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NameMalformedRequests();

}  // namespace penstock
