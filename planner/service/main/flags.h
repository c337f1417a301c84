// The command line of penstock-planner.
#pragma once

#include <optional>
#include <string>

#include "common/logging/logging.h"
#include "planner/service/main/planner_server.h"

namespace penstock {

struct PlannerFlags {
  // Empty: none is written.
  std::string audit_log;
  PlannerServerOptions server;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  // Where jobs are kept: see store/open/open_event_store.h.
  std::string store = "sqlite:penstock-planner.db";
  // A cost profile of what simulated devices take; empty: what their job's says.
  std::string simulated_profile;
  // Where the bound ports are written as JSON; empty: nowhere.
  std::string port_file;
};

// The flags, or the status to exit with: 0 after --help, 2 when a flag is wrong (named on stderr).
struct ParsedFlags {
  PlannerFlags flags;
  std::optional<int> exit_status;
};
ParsedFlags ParseFlags(int argc, char** argv);

}  // namespace penstock
