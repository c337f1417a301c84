// The flags of every program that calls a planner.
#pragma once

#include "common/grpc/security/client_security.h"

namespace CLI {
class App;
}

namespace penstock {

// --tls-ca and the like.
void AddClientSecurityFlags(CLI::App& app, ClientSecurity& security);

}  // namespace penstock
