#include "common/grpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/grpc/limits.h"
#include "common/grpc/malformed_requests.h"
#include "common/net/listening.h"

namespace penstock {
namespace {

// gRPC's reflection library adds itself to every server of a program that links it; this takes it out again.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) { return plugin->name() == kReflectionPlugin; });
  }

 private:
  static constexpr char kReflectionPlugin[] = "proto_server_reflection";
};

void SetLimits(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveIntervalMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleConnectionMs);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
}

std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> Interceptors(
    const ServerOptions& options) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(NameMalformedRequests());
  // Sees what those before it have made of a status.
  if (options.observer) interceptors.push_back(ObserveCalls(options.observer));
  return interceptors;
}

// gRPC takes a port modulo 65536.
bool PortInRange(absl::string_view address) {
  int port = 0;
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) return true;
  return port >= 0 && port <= 65535;
}

}  // namespace

absl::StatusOr<RunningServer> StartServer(const ServerOptions& options) {
  if (!PortInRange(options.listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on '", options.listen, "': a port is 0 to 65535"));
  }
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetLimits(&builder);
  if (!options.reflection) builder.SetOption(std::make_unique<WithoutReflection>());
  RunningServer running;
  builder.AddListeningPort(
      options.listen,
      options.credentials != nullptr ? options.credentials : grpc::InsecureServerCredentials(),
      &running.port);
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  builder.experimental().SetInterceptorCreators(Interceptors(options));
  Listeners listeners = ListenersOpenedBy([&] { running.server = builder.BuildAndStart(); });
  if (running.server == nullptr || running.port == 0) return ListenError(options.listen);
  running.spare = std::make_unique<SpareDescriptors>(std::move(listeners));
  return running;
}

}  // namespace penstock
