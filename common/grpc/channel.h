// Client channels with the message sizes and the keepalive that Penstock's servers expect.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace penstock {

// `address` is "host:port". Does not block; a server that is not there shows as UNAVAILABLE on the first
// call.
std::shared_ptr<grpc::Channel> CreateClientChannel(const std::string& address);

}  // namespace penstock
