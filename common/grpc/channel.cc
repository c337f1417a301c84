#include "common/grpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc/service_names.h"
#include "common/grpc/targets.h"

namespace penstock {
namespace {

// Of several servers one may stand still with its connections open while another takes over.
constexpr Keepalive kAmongSeveral = {.interval_ms = 2'000, .timeout_ms = 3'000};
// Of one attempt to connect.
constexpr int kConnectTimeoutMs = 5'000;

// gRPC's own: it holds a connection to each server and asks its health service to be told of changes.
std::string ServiceConfig(Among among) {
  return absl::StrCat(R"({"loadBalancingConfig": [{"round_robin": {}}])",
                      among == Among::kLeader
                          ? absl::StrCat(R"(, "healthCheckConfig": {"serviceName": ")", kLeads, R"("})")
                          : "",
                      "}");
}

}  // namespace

std::shared_ptr<grpc::Channel> CreateClientChannel(const std::string& addresses, const Keepalive& keepalive,
                                                   Among among, const ChannelSecurity& security) {
  const bool several = NamesSeveral(addresses);
  const int longest_interval = several ? kAmongSeveral.interval_ms : keepalive.interval_ms;
  const int longest_timeout = several ? kAmongSeveral.timeout_ms : keepalive.timeout_ms;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, std::min(keepalive.interval_ms, longest_interval));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, std::min(keepalive.timeout_ms, longest_timeout));
  // gRPC sends two pings and then none until the client has data to send, which a reader never has.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Two clients of one process never share a connection, so that one cannot starve the other.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (several) {
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
    arguments.SetServiceConfigJSON(ServiceConfig(among));
  }
  if (!security.server_name.empty()) arguments.SetSslTargetNameOverride(security.server_name);
  return grpc::CreateCustomChannel(
      TargetOf(addresses),
      security.credentials != nullptr ? security.credentials : grpc::InsecureChannelCredentials(), arguments);
}

void PauseUntilConnected(grpc::Channel* channel, absl::Duration pause) {
  if (channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) {
    absl::SleepFor(pause);
  } else {
    channel->WaitForConnected(absl::ToChronoTime(absl::Now() + pause));
  }
}

}  // namespace penstock
