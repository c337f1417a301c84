#include "tests/system/hosts/host_network.h"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock::testing {
namespace {

constexpr char kSwitch[] = "switch";
constexpr absl::Duration kCommand = absl::Seconds(10);

// The switch's end of a host's cable.
std::string SwitchPort(int host) { return absl::StrCat("plug", host); }
std::string Address(int host) { return absl::StrCat("10.77.0.", host + 1); }

}  // namespace

absl::StatusOr<std::unique_ptr<HostNetwork>> HostNetwork::Create(int hosts) {
  auto network = std::unique_ptr<HostNetwork>(new HostNetwork());
  if (unshare(CLONE_NEWNET) != 0) {
    return absl::UnavailableError(absl::StrCat("a network namespace cannot be made: ", std::strerror(errno)));
  }
  PENSTOCK_RETURN_IF_ERROR(network->MakeSwitch());
  for (int host = 0; host < hosts; ++host) PENSTOCK_RETURN_IF_ERROR(network->AddHost(host));
  return network;
}

absl::Status HostNetwork::MakeSwitch() {
  PENSTOCK_RETURN_IF_ERROR(Run({"ip", "link", "set", "lo", "up"}));
  PENSTOCK_RETURN_IF_ERROR(Run({"ip", "link", "add", kSwitch, "type", "bridge"}));
  // This process is on the switch, too.
  PENSTOCK_RETURN_IF_ERROR(Run({"ip", "address", "add", "10.77.0.254/24", "dev", kSwitch}));
  return Run({"ip", "link", "set", kSwitch, "up"});
}

absl::Status HostNetwork::AddHost(int host) {
  // The shell says that it is in its own namespace by ending a line; then it waits for its end.
  const std::string ready = folder_.Path(absl::StrCat("host-", host));
  auto keeper = ChildProcess::Start(
      {.arguments = {"unshare", "--net", "sh", "-c", absl::StrCat("echo > ", ready, "; exec sleep infinity")},
       .log_path = folder_.Path("log")});
  PENSTOCK_RETURN_IF_ERROR(keeper.status());
  keepers_.push_back(*std::move(keeper));
  const absl::Time deadline = absl::Now() + kCommand;
  while (!ReadFile(ready).ok()) {
    if (keepers_.back()->WaitFor(absl::Milliseconds(1)).has_value() || absl::Now() > deadline) {
      return absl::UnavailableError(absl::StrCat("unshare --net: ", folder_.Read("log")));
    }
  }
  const std::string pid = absl::StrCat(keepers_.back()->pid());
  places_.push_back(
      {.launcher = {"nsenter", absl::StrCat("--net=/proc/", pid, "/ns/net")}, .address = Address(host)});
  PENSTOCK_RETURN_IF_ERROR(
      Run({"ip", "link", "add", SwitchPort(host), "type", "veth", "peer", "name", "eth0", "netns", pid}));
  PENSTOCK_RETURN_IF_ERROR(Run({"ip", "link", "set", SwitchPort(host), "master", kSwitch, "up"}));
  PENSTOCK_RETURN_IF_ERROR(
      RunOn(host, {"ip", "address", "add", absl::StrCat(Address(host), "/24"), "dev", "eth0"}));
  PENSTOCK_RETURN_IF_ERROR(RunOn(host, {"ip", "link", "set", "lo", "up"}));
  return RunOn(host, {"ip", "link", "set", "eth0", "up"});
}

absl::Status HostNetwork::Limit(int host, const std::string& rate) {
  return RunOn(host, {"tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb",
                      "latency", "100ms"});
}

absl::Status HostNetwork::Pull(int host) { return Run({"ip", "link", "set", SwitchPort(host), "down"}); }
absl::Status HostNetwork::Plug(int host) { return Run({"ip", "link", "set", SwitchPort(host), "up"}); }

absl::Status HostNetwork::RunOn(int host, std::vector<std::string> command) const {
  const std::vector<std::string>& launcher = places_[host].launcher;
  command.insert(command.begin(), launcher.begin(), launcher.end());
  return Run(std::move(command));
}

absl::Status HostNetwork::Run(std::vector<std::string> command) const {
  PENSTOCK_ASSIGN_OR_RETURN(const auto process,
                            ChildProcess::Start({.arguments = command, .log_path = folder_.Path("log")}));
  const std::optional<ExitStatus> ended = process->WaitFor(kCommand);
  if (ended.has_value() && ended->ok()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(absl::StrJoin(command, " "), ": ", folder_.Read("log")));
}

}  // namespace penstock::testing
