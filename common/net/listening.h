// Where a server of this machine may listen, and why it could not.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const std::string address, WithUnusedPort("127.0.0.1:0"));
//   if (!library.ListensOn(address)) return ListenError(address);
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

// Of ports, both ends included.
struct PortRange {
  int first = 0;
  int last = 0;
};

// Ports that this machine's kernel gives to nobody who asks for any: neither to a server that listens on port
// 0 nor to a client that connects. Above those of well-known services.
PortRange PortsGivenToNobody();

// A port among them that nobody uses at any address of version 4. Meant for a server that is started again
// where it was: while it is away, a port that the kernel had chosen may be given to somebody else's
// connection, for as long as that lasts. Possible errors: RESOURCE_EXHAUSTED (none was found).
absl::StatusOr<int> UnusedPort(PortRange among = PortsGivenToNobody());

// "host:0" with such a port, other addresses as they are. Possible errors: those of UnusedPort.
absl::StatusOr<std::string> WithUnusedPort(const std::string& address);

// Why nothing could listen on `address`, "host:port", for libraries that do not tell; it is tried once more.
// UNAVAILABLE: the port is in use, or was a moment ago; another start may find it free. INVALID_ARGUMENT: it
// is no "host:port" of this machine, or of a port that this process may not take. Both quote the address.
absl::Status ListenError(const std::string& address);

}  // namespace penstock
