#include "common/grpc/security/client_flags.h"

#include <CLI/CLI.hpp>

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

}  // namespace penstock
