// Addresses as users give them, as gRPC takes them.
#pragma once

#include <string>

namespace penstock {

// Whether `addresses` may name several servers: "a:7070,b:7070", or a name of gRPC's own whose addresses are
// those of all servers, "dns:///planners:7070".
bool NamesSeveral(const std::string& addresses);

// What is wrong with addresses that a user gave, as CLI11 wants it of a check of a flag; empty: nothing. A
// host need not be known yet. Names with a scheme are gRPC's to judge.
std::string WhatIsWrongWithAddresses(const std::string& addresses);

// Whether who listens on `address` ("host:port") is reached from this machine alone.
bool IsLoopback(const std::string& address);

// One target for all of them. Names in a list are looked up now (blocks), and not again: those that are not
// found are left out with a warning. A name of gRPC's own stays as it is, and is looked up whenever
// connections are lost.
std::string TargetOf(const std::string& addresses);

}  // namespace penstock
