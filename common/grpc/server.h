// Starts a gRPC server with Penstock's limits: message sizes, keepalive, no port shared between processes.
//
//   HealthService health;
//   PENSTOCK_ASSIGN_OR_RETURN(RunningServer running, StartServer({"127.0.0.1:0", {&service, &health}}));
//   ... running.port ...
//   running.server->Shutdown(deadline);
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/grpc/call_observer.h"
#include "common/grpc/spare_descriptors.h"

namespace penstock {

struct ServerOptions {
  // "host:port"; port 0 picks a free one.
  std::string listen;
  // Not owned; must outlive the server.
  std::vector<grpc::Service*> services;
  // Serves grpc.reflection.v1alpha, so that grpcurl works without the .proto files.
  bool reflection = false;
  // Null: neither encrypted nor guarded (security/server_security.h).
  std::shared_ptr<grpc::ServerCredentials> credentials = nullptr;
  // Told of each call that ended; may be empty.
  CallObserver observer = nullptr;
};

struct RunningServer {
  std::unique_ptr<grpc::Server> server;
  // To be destroyed before the server is shut down.
  std::unique_ptr<SpareDescriptors> spare;
  // The port that was bound.
  int port = 0;
};

// Possible errors: those of ListenError (common/net).
absl::StatusOr<RunningServer> StartServer(const ServerOptions& options);

}  // namespace penstock
