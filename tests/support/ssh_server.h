// A real sshd on a free port of loopback, with keys made for the test, for whoever runs the test.
//
//   if (const std::string reason = SshServer::WhyNot(); !reason.empty()) GTEST_SKIP() << reason;
//   PENSTOCK_ASSIGN_OR_RETURN(const auto server, SshServer::Start());
//   ... penstock up --ssh server->Client() ...
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/process/child_process.h"
#include "tests/support/temporary_folder.h"

namespace penstock {

class SshServer {
 public:
  // Why there can be none here; empty where there can.
  static std::string WhyNot();
  // Possible errors: those of ChildProcess::Start; UNAVAILABLE (it has ended, or does not listen: with its
  // log).
  static absl::StatusOr<std::unique_ptr<SshServer>> Start();
  // Connections end with it.
  ~SshServer();

  // An ssh with all that it needs to get in, in words without spaces.
  std::string Client() const;
  // Kills the server's process of one connection.
  void CutAConnection();

 private:
  SshServer() = default;
  absl::Status MakeKey(const std::string& name);
  absl::Status Listen();
  absl::Status WaitUntilItListens();

  TemporaryFolder folder_;
  int port_ = 0;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace penstock
