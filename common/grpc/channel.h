// Client channels, to one server or to several, with the message sizes and the keepalive that Penstock's
// servers expect.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/grpc/limits.h"
#include "penstock/client/security.h"

namespace penstock {

// When a connection with open calls and nothing to send is asked for a sign of life, and how long that may
// take before its calls end with UNAVAILABLE.
struct Keepalive {
  // Servers take no less than kMinPingIntervalMs.
  int interval_ms = kKeepaliveIntervalMs;
  int timeout_ms = kKeepaliveTimeoutMs;
};

// Which of several planners a channel uses.
enum class Among {
  // The one that leads, as its health service says (kLeads): another as soon as another leads.
  kLeader,
  // All that can be reached, in turn.
  kAll,
};

// `addresses` is "host:port", or names several servers (targets.h). Does not connect; a server that is not
// there shows as UNAVAILABLE on the first call. Among several, one that does not answer is noticed within 5
// s.
std::shared_ptr<grpc::Channel> CreateClientChannel(const std::string& addresses,
                                                   const Keepalive& keepalive = {},
                                                   Among among = Among::kLeader,
                                                   const ChannelSecurity& security = {});

// Lets time pass before the next attempt, at most `pause`: less when a connection comes about. A channel on
// which nobody waits looks at its connections every 5 s at best.
void PauseUntilConnected(grpc::Channel* channel, absl::Duration pause);

}  // namespace penstock
