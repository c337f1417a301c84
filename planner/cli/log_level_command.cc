// `penstock log-level`: how much a planner that runs logs.
#include <grpcpp/client_context.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/grpc/channel.h"
#include "common/grpc/status_conversion.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "penstock/v1/operations.grpc.pb.h"
#include "planner/cli/commands.h"
#include "planner/cli/planner_flags.h"
#include "planner/cli/printable_text.h"

namespace penstock::cli {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(10);

struct LogLevelFlags {
  PlannerFlags planner;
  std::string level;
};

absl::Status RunLogLevel(const LogLevelFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const ChannelSecurity security, SecurityOfChannels(flags.planner.security));
  // One planner, whether it leads or not.
  const auto planner = v1::PlannerOperations::NewStub(
      CreateClientChannel(flags.planner.address, Keepalive(), Among::kAll, security));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kDeadline));
  v1::SetLogLevelRequest request;
  request.set_level(flags.level);
  v1::SetLogLevelResponse response;
  const absl::Status status = FromStatusOfCall(planner->SetLogLevel(&context, request, &response));
  if (!status.ok()) return flags.planner.Explained(status, security);
  PrintOut(absl::StrCat("log level ", response.before(), " -> ", flags.level, "\n"));
  return absl::OkStatus();
}

}  // namespace

void AddLogLevelCommand(CommandSet& commands) {
  auto flags = std::make_shared<LogLevelFlags>();
  CLI::App* command = commands.Add({.name = "log-level",
                                    .purpose = "Has a planner log more or less from now on",
                                    .examples = "penstock log-level debug --planner localhost:7070"});
  flags->planner.AddTo(*command, "host:port of the planner")->required();
  command->add_option("level", flags->level, "debug, info, warning or error")
      ->required()
      ->check(CLI::IsMember(LogLevelNames()));
  commands.OnRun(command, [flags] { return RunLogLevel(*flags); });
}

}  // namespace penstock::cli
