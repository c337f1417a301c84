#include "common/grpc/security/client_flags.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock {

void AddClientSecurityFlags(CLI::App& app, ClientSecurity& security) {
  app.add_option(
      "--tls-ca", security.authority,
      "PEM file of who signs the planner's certificate (default: the connection is not encrypted)");
  app.add_option("--tls-cert", security.certificate, "PEM file of a certificate that says who calls");
  app.add_option("--tls-key", security.key, "PEM file of its private key");
  app.add_option("--token-file", security.token,
                 "File with a token that says who calls, in place of a certificate");
  app.add_option("--tls-server-name", security.server_name,
                 "Name in the planner's certificate (default: the host of its address)");
}

std::vector<std::string> AsFlags(const ClientSecurity& security) {
  std::vector<std::string> flags;
  for (const auto& [flag, value] :
       {std::pair("--tls-ca", &security.authority), std::pair("--tls-cert", &security.certificate),
        std::pair("--tls-key", &security.key), std::pair("--token-file", &security.token),
        std::pair("--tls-server-name", &security.server_name)}) {
    if (!value->empty()) flags.push_back(absl::StrCat(flag, "=", *value));
  }
  return flags;
}

}  // namespace penstock
