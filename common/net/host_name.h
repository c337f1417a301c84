// The name of this machine.
#pragma once

#include <string>

namespace penstock {

// What this machine is called; "localhost" when it does not say.
std::string HostName();

}  // namespace penstock
