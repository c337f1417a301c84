// The flags of every program that calls a planner.
#pragma once

#include <string>
#include <vector>

#include "penstock/client/security.h"

namespace CLI {
class App;
}

namespace penstock {

// --tls-ca and the like.
void AddClientSecurityFlags(CLI::App& app, ClientSecurity& security);

// The same as flags of another of Penstock's programs, "--tls-ca=ca.crt".
std::vector<std::string> AsFlags(const ClientSecurity& security);

}  // namespace penstock
