// The addresses that a name stands for.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"

namespace penstock {

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
// A list, of one at least.
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Of TCP at `host`, a name or an address; null: any of this machine, to listen on. Blocks while the name is
// looked up. Possible errors: UNAVAILABLE (the resolver's words).
inline absl::StatusOr<Addresses> Resolve(const char* host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = port.empty() ? EAI_SERVICE : getaddrinfo(host, port.c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  return Addresses(found);
}

// "::1" of "[::1]", other hosts as they are.
inline std::string WithoutBrackets(const std::string& host) {
  const bool bracketed = absl::StartsWith(host, "[") && absl::EndsWith(host, "]");
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

}  // namespace penstock
