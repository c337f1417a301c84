#include "tests/support/test_certificates.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/files/files.h"
#include "common/process/child_process.h"

namespace penstock {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

void RunCerts(const TemporaryFolder& folder, const std::vector<std::string>& arguments, int days) {
  std::vector<std::string> words = {PENSTOCK_CERTS, folder.path()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  auto certs = ChildProcess::Start({.arguments = words,
                                    .environment = {{"PENSTOCK_CERT_DAYS", absl::StrCat(days)}},
                                    .log_path = folder.Path("certs.log")});
  ASSERT_TRUE(certs.ok()) << certs.status();
  const std::optional<ExitStatus> end = (*certs)->WaitFor(kPatience);
  ASSERT_TRUE(end.has_value() && end->ok()) << folder.Read("certs.log");
}

}  // namespace

TestCertificates::TestCertificates(const std::string& host) : host_(host) { RenewPlanner(); }

void TestCertificates::RenewPlanner(int days) { RunCerts(folder_, {host_}, days); }

void TestCertificates::MakeCaller(const std::string& role, const std::string& owner, int days) {
  std::vector<std::string> arguments = {"--caller", role};
  if (!owner.empty()) arguments.push_back(owner);
  RunCerts(folder_, arguments, days);
}

ServerSecurity TestCertificates::Server() const {
  return {.certificate = Path("planner.crt"),
          .key = Path("planner.key"),
          .client_authority = Path("ca.crt"),
          .tokens = {}};
}

ClientSecurity TestCertificates::Client(const std::string& caller) const {
  ClientSecurity security = {
      .authority = Path("ca.crt"), .certificate = {}, .key = {}, .token = {}, .server_name = {}};
  if (!caller.empty()) {
    security.certificate = Path(absl::StrCat(caller, ".crt"));
    security.key = Path(absl::StrCat(caller, ".key"));
  }
  return security;
}

std::string TestCertificates::Write(const std::string& file, const std::string& contents) const {
  const std::string path = Path(file);
  EXPECT_TRUE(WriteFileAtomically(path, contents).ok());
  return path;
}

}  // namespace penstock
