// Client channels with the message sizes and the keepalive that Penstock's servers expect.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "common/grpc/limits.h"

namespace penstock {

// When a connection with open calls and nothing to send is asked for a sign of life, and how long that may
// take before its calls end with UNAVAILABLE.
struct Keepalive {
  // Servers take no less than kMinPingIntervalMs.
  int interval_ms = kKeepaliveIntervalMs;
  int timeout_ms = kKeepaliveTimeoutMs;
};

// `address` is "host:port". Does not block; a server that is not there shows as UNAVAILABLE on the first
// call.
std::shared_ptr<grpc::Channel> CreateClientChannel(const std::string& address,
                                                   const Keepalive& keepalive = {});

}  // namespace penstock
