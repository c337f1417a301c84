// `penstock health`: asks one planner how it is, for health checks in images that have no shell.
#include <grpcpp/client_context.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/grpc/channel.h"
#include "common/grpc/status_conversion.h"
#include "common/grpc/targets.h"
#include "common/status/status_macros.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "planner/cli/commands.h"
#include "planner/cli/planner_flags.h"

namespace penstock::cli {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

struct HealthFlags {
  PlannerFlags planner;
  std::string service;
  double timeout_seconds = 3;
};

absl::StatusOr<HealthCheckResponse> Check(const HealthFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const ChannelSecurity security, SecurityOfChannels(flags.planner.security));
  const auto health = grpc::health::v1::Health::NewStub(
      CreateClientChannel(flags.planner.address, Keepalive(), Among::kLeader, security));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(flags.timeout_seconds)));
  HealthCheckRequest request;
  request.set_service(flags.service);
  HealthCheckResponse response;
  const absl::Status status = FromGrpcStatus(health->Check(&context, request, &response));
  if (!status.ok()) return flags.planner.Explained(status, security);
  return response;
}

absl::Status RunHealth(const HealthFlags& flags) {
  if (NamesSeveral(flags.planner.address)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--planner ", flags.planner.address, ": names several planners: health is asked of one, host:port"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const HealthCheckResponse response, Check(flags));
  const std::string state = HealthCheckResponse::ServingStatus_Name(response.status());
  if (response.status() != HealthCheckResponse::SERVING) {
    return absl::UnavailableError(
        absl::StrCat("--planner ", flags.planner.address, ": ", state,
                     flags.service.empty() ? "" : absl::StrCat(" (--service ", flags.service, ")")));
  }
  std::cout << state << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddHealthCommand(CommandSet& commands) {
  auto flags = std::make_shared<HealthFlags>();
  CLI::App* command =
      commands.Add({.name = "health",
                    .purpose = "Asks one planner for its health: ends with 0 where it is SERVING",
                    .examples = "penstock health --planner localhost:7072\n"
                                "penstock health --planner localhost:7072 --service "
                                "penstock.v1.PlannerService"});
  flags->planner.AddTo(*command, "host:port of its --listen or --health-listen")->required();
  command->add_option("--service", flags->service,
                      "Health of what: penstock.v1.PlannerService (it leads and its store can be written), "
                      "penstock.v1.PlannerService/leader (default: it lives)");
  command->add_option("--timeout", flags->timeout_seconds, "Seconds to wait for the answer")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 600.0));
  commands.OnRun(command, [flags] { return RunHealth(*flags); });
}

}  // namespace penstock::cli
