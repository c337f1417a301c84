// The name of a planner: where clients and other planners' clients reach it.
#pragma once

#include <string>

namespace penstock {

// Of a planner that listens on `listen` ("host:port") and was bound to `port`: its host, unless that means
// every address or is this machine's alone; then `host_name`, so that planners on two machines have two
// names.
std::string DefaultPlannerName(const std::string& listen, int port, const std::string& host_name);

}  // namespace penstock
