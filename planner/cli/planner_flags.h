// --planner, and how that planner is trusted: the same for every command that asks one.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/client/planner_client.h"
#include "penstock/client/security.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace penstock::cli {

struct PlannerFlags {
  // "host:port", or those of several planners that share a store; empty: not given.
  std::string address;
  ClientSecurity security;

  // Must outlive `command`. Returns --planner.
  CLI::Option* AddTo(CLI::App& command, const std::string& help);

  // Does not connect yet. Possible errors: those of SecurityOfChannels.
  absl::StatusOr<std::unique_ptr<PlannerClient>> Client() const;
  // The same for commands whose answer a person waits for: where one address is given and the planner there
  // is a standby, it says at once who leads instead of waiting until it leads itself.
  absl::StatusOr<std::unique_ptr<PlannerClient>> ImpatientClient() const;

  // How a call over a channel of one's own ended: with why there is no connection, where that lies with
  // certificates, and --planner in front. OK stays so.
  absl::Status Explained(const absl::Status& status, const ChannelSecurity& channel) const;
};

// What --planner is to a command that needs one.
inline constexpr char kPlannerHelp[] = "host:port of the planner; of all that share a store: a:7070,b:7070";

}  // namespace penstock::cli
