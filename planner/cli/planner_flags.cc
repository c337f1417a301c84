#include "planner/cli/planner_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "common/grpc/security/client_flags.h"
#include "common/grpc/targets.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock::cli {

CLI::Option* PlannerFlags::AddTo(CLI::App& command, const std::string& help) {
  CLI::Option* planner = command.add_option("--planner", address, help)->check(WhatIsWrongWithAddresses);
  AddClientSecurityFlags(command, security);
  return planner;
}

absl::StatusOr<std::unique_ptr<PlannerClient>> PlannerFlags::Client() const {
  PENSTOCK_ASSIGN_OR_RETURN(const ChannelSecurity channel, SecurityOfChannels(security));
  return std::make_unique<PlannerClient>(address, channel);
}

absl::StatusOr<std::unique_ptr<PlannerClient>> PlannerFlags::ImpatientClient() const {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<PlannerClient> client, Client());
  if (!NamesSeveral(address)) client->EndWhereAnotherLeads();
  return client;
}

absl::Status PlannerFlags::Explained(const absl::Status& status, const ChannelSecurity& channel) const {
  absl::Status why;
  // One that waits for its connection, too.
  const bool unreached = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (unreached && channel.explain != nullptr) why = channel.explain(address);
  return AnnotateError(why.ok() ? status : why, absl::StrCat("--planner ", address));
}

}  // namespace penstock::cli
