// How a client trusts a planner and says who it is.
//
//   absl::StatusOr<ChannelSecurity> security =
//       SecurityOfChannels({.authority = "ca.crt", .token = "token.txt"});
//   if (!security.ok()) return security.status();
//   PlannerClient client("planner.example.com:7070", *security);
#pragma once

#include <grpcpp/security/credentials.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

// Paths of PEM files and of a token; empty: none. Certificates are read again when they change, and the token
// with every call. Beside each: the flag of Penstock's programs, which errors name.
struct ClientSecurity {
  // --tls-ca: who signs the planner's certificate; empty: the connection is not encrypted.
  std::string authority = {};
  // --tls-cert and --tls-key.
  std::string certificate = {};
  std::string key = {};
  // --token-file: a file with a token alone.
  std::string token = {};
  // --tls-server-name: the name in the planner's certificate, where it is not the host of its address.
  std::string server_name = {};

  bool encrypts() const { return !authority.empty(); }
};

// The same in gRPC's terms, for those who have credentials of their own.
struct ChannelSecurity {
  // Null: not encrypted.
  std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr;
  // The name in the planner's certificate; empty: the host of its address.
  std::string server_name = {};
  // Why no connection with these addresses comes about, where that lies with certificates: in words for
  // people, as UNAVAILABLE. OK: not with them. Blocks for a second or so. Null: nobody knows.
  std::function<absl::Status(const std::string& addresses)> explain = nullptr;
};

// Reads the files. Possible errors: INVALID_ARGUMENT (files that do not go together, or are no PEM; names the
// flag), NOT_FOUND and PERMISSION_DENIED (a file cannot be read; names flag and file), FAILED_PRECONDITION (a
// certificate has expired; names flag, file and date).
absl::StatusOr<ChannelSecurity> SecurityOfChannels(const ClientSecurity& security);

}  // namespace penstock
