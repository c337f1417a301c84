// Certificates of an authority of one's own, made by deploy/certs.
#pragma once

#include <string>

#include "common/grpc/security/server_security.h"
#include "penstock/client/security.h"
#include "tests/support/temporary_folder.h"

namespace penstock {

// Fails the test where they cannot be made.
class TestCertificates {
 public:
  // An authority, and a planner's certificate for localhost, 127.0.0.1 and `host`.
  explicit TestCertificates(const std::string& host = "planner.test");

  // The planner's certificate anew, of the same authority. `days`: as of MakeCaller.
  void RenewPlanner(int days = 1);
  // ROLE.crt, or ROLE-OWNER.crt where there is an owner. Valid for `days`; below 0: no more.
  void MakeCaller(const std::string& role, const std::string& owner, int days = 1);

  // Who signs callers is this authority.
  ServerSecurity Server() const;
  // Whom `caller` ("client-alice"; empty: nobody) is to this authority's planner.
  ClientSecurity Client(const std::string& caller) const;
  std::string Path(const std::string& file) const { return folder_.Path(file); }
  // A new file; its path.
  std::string Write(const std::string& file, const std::string& contents) const;

 private:
  const std::string host_;
  const TemporaryFolder folder_;
};

}  // namespace penstock
