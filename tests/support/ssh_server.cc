#include "tests/support/ssh_server.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/listening.h"
#include "common/status/status_macros.h"
#include "tests/support/local_connection.h"

namespace penstock {
namespace {

constexpr char kProgram[] = "/usr/sbin/sshd";
constexpr absl::Duration kSshdDeadline = absl::Seconds(20);

// Processes whose parent is `parent`.
std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  std::ifstream file(absl::StrCat("/proc/", parent, "/task/", parent, "/children"));
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

}  // namespace

std::string SshServer::WhyNot() {
  if (!std::filesystem::exists(kProgram)) return "no sshd: install openssh-server";
  // What it gives up its rights in is made by its package's start script, which a container does not run.
  std::error_code ignored;
  std::filesystem::create_directories("/run/sshd", ignored);
  if (!std::filesystem::exists("/run/sshd")) return "no /run/sshd, and no right to make it";
  return "";
}

absl::Status SshServer::MakeKey(const std::string& name) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto keygen,
                            ChildProcess::Start({.arguments = {"ssh-keygen", "-q", "-t", "ed25519", "-N", "",
                                                               "-f", folder_.Path(name)},
                                                 .log_path = folder_.Path("keygen.log")}));
  const auto ended = keygen->WaitFor(kSshdDeadline);
  if (ended.has_value() && ended->ok()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("ssh-keygen: ", folder_.Read("keygen.log")));
}

absl::Status SshServer::WaitUntilItListens() {
  const absl::Time deadline = absl::Now() + kSshdDeadline;
  while (ConnectToLocalPort(port_).get() < 0) {
    const bool ended = process_->WaitFor(absl::Milliseconds(20)).has_value();
    if (ended || absl::Now() > deadline) {
      return absl::UnavailableError(absl::StrCat("sshd does not listen: ", folder_.Read("sshd.log")));
    }
  }
  return absl::OkStatus();
}

absl::Status SshServer::Listen() {
  PENSTOCK_ASSIGN_OR_RETURN(port_, UnusedPort());
  const std::string configuration = folder_.Write(
      "sshd_config",
      absl::StrCat("ListenAddress 127.0.0.1\nPort ", port_, "\nHostKey ", folder_.Path("host_key"),
                   "\nAuthorizedKeysFile ", folder_.Path("user_key.pub"),
                   "\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
                   "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
                   "MaxStartups 64\n"));
  PENSTOCK_ASSIGN_OR_RETURN(process_,
                            ChildProcess::Start({.arguments = {kProgram, "-D", "-e", "-f", configuration},
                                                 .log_path = folder_.Path("sshd.log")}));
  return WaitUntilItListens();
}

absl::StatusOr<std::unique_ptr<SshServer>> SshServer::Start() {
  std::unique_ptr<SshServer> server(new SshServer());
  PENSTOCK_RETURN_IF_ERROR(server->MakeKey("host_key"));
  PENSTOCK_RETURN_IF_ERROR(server->MakeKey("user_key"));
  PENSTOCK_RETURN_IF_ERROR(server->Listen());
  return server;
}

SshServer::~SshServer() {
  if (process_ == nullptr) return;
  for (const pid_t connection : ChildrenOf(process_->pid())) kill(connection, SIGKILL);
}

std::string SshServer::Client() const {
  return absl::StrCat("ssh -F none -p ", port_, " -i ", folder_.Path("user_key"),
                      " -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null");
}

void SshServer::CutAConnection() {
  const std::vector<pid_t> connections = ChildrenOf(process_->pid());
  if (!connections.empty()) kill(connections.front(), SIGKILL);
}

}  // namespace penstock
