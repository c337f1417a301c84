// How a client trusts a server and says who it is.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/grpc/channel.h"

namespace penstock {

// Paths of PEM files and of a token; empty: none. Certificates are read again when they change, and the token
// with every call.
struct ClientSecurity {
  // Who signs the server's certificate; empty: the connection is not encrypted.
  std::string authority;
  std::string certificate;
  std::string key;
  // A file with a token alone.
  std::string token;
  // The name in the server's certificate, where it is not the host of its address.
  std::string server_name;

  bool encrypts() const { return !authority.empty(); }
};

// The same as flags of another of Penstock's programs, "--tls-ca=ca.crt".
std::vector<std::string> AsFlags(const ClientSecurity& security);

// Possible errors: INVALID_ARGUMENT (files that do not go together, or are no PEM; names the flag), NOT_FOUND
// and PERMISSION_DENIED (a file cannot be read; names flag and file).
absl::StatusOr<ChannelSecurity> SecurityOfChannels(const ClientSecurity& security);

}  // namespace penstock
