#include "common/net/listening.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/net/resolve.h"
#include "common/process/file_descriptor.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr char kPortsThatTheKernelGives[] = "/proc/sys/net/ipv4/ip_local_port_range";
constexpr PortRange kWithoutSuchAFile = {.first = 12000, .last = 29999};
constexpr int kLastPort = 65535;
// Fewer are not worth it: two that choose at once would meet.
constexpr int kFewestPorts = 1000;
constexpr int kTries = 100;

// Nobody else is there, also not one whose connections still end.
bool IsUnused(int port) {
  const FileDescriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  return bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

// Of "host:port"; none: it has no port in range.
std::optional<int> PortOf(absl::string_view address) {
  int port = 0;
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port))
    return std::nullopt;
  return port >= 0 && port <= kLastPort ? std::optional(port) : std::nullopt;
}

// 0, or the errno of what a server does first.
int TryToListen(const addrinfo& address) {
  const FileDescriptor probe(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  if (probe.get() < 0 || setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(probe.get(), address.ai_addr, address.ai_addrlen) != 0 || listen(probe.get(), 1) != 0)
    return errno;
  return 0;
}

}  // namespace

PortRange PortsGivenToNobody() {
  std::ifstream file(kPortsThatTheKernelGives);
  PortRange given;
  if (!(file >> given.first >> given.last)) return kWithoutSuchAFile;
  const PortRange below = {.first = kWithoutSuchAFile.first, .last = given.first - 1};
  const PortRange above = {.first = given.last + 1, .last = kLastPort};
  if (below.last - below.first >= kFewestPorts) return below;
  if (above.last - above.first >= kFewestPorts) return above;
  return kWithoutSuchAFile;
}

absl::StatusOr<int> UnusedPort(PortRange among) {
  std::random_device random;
  std::uniform_int_distribution<int> any(among.first, among.last);
  for (int i = 0; i < kTries; ++i) {
    const int port = any(random);
    if (IsUnused(port)) return port;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no unused port found among ", among.first, " to ", among.last));
}

absl::StatusOr<std::string> WithUnusedPort(const std::string& address) {
  if (PortOf(address) != 0) return address;
  PENSTOCK_ASSIGN_OR_RETURN(const int port, UnusedPort());
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

absl::Status ListenError(const std::string& address) {
  const std::string what = absl::StrCat("cannot listen on '", address, "': ");
  const absl::Status wrong =
      absl::InvalidArgumentError(absl::StrCat(what, "use HOST:PORT with an address of this machine"));
  const std::optional<int> port = PortOf(address);
  if (!port.has_value()) return wrong;
  const std::string host = WithoutBrackets(address.substr(0, address.rfind(':')));
  const absl::StatusOr<Addresses> addresses =
      Resolve(host.empty() ? nullptr : host.c_str(), absl::StrCat(*port));
  if (!addresses.ok()) return wrong;
  // One may be of a family that this machine does not speak.
  bool could = false;
  int error = 0;
  for (const addrinfo* next = addresses->get(); next != nullptr; next = next->ai_next) {
    error = TryToListen(*next);
    if (error == EADDRINUSE)
      return absl::UnavailableError(
          absl::StrCat(what, "the port is in use; use another, or end who uses it"));
    could = could || error == 0;
  }
  if (could) return absl::UnavailableError(absl::StrCat(what, "it could not; it could a moment later"));
  return absl::InvalidArgumentError(
      absl::StrCat(what, std::strerror(error), "; use HOST:PORT with an address of this machine"));
}

}  // namespace penstock
