#include "worker/rendezvous/listening_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/net/resolve.h"

namespace penstock::worker {
namespace {

// Connections that wait to be accepted: all ranks of a large job come at once.
constexpr int kBacklog = 4096;

absl::Status Failure(const std::string& host, absl::string_view reason) {
  return absl::UnavailableError(absl::StrCat("cannot listen on --host '", host, "': ", reason));
}

absl::StatusOr<uint16_t> PortOf(int descriptor) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return absl::UnavailableError(std::strerror(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

absl::StatusOr<ListeningSocket> ListenOn(const std::string& host) {
  const absl::StatusOr<Addresses> addresses = Resolve(host.c_str(), "0");
  if (!addresses.ok()) return Failure(host, addresses.status().message());
  const addrinfo& found = **addresses;
  FileDescriptor descriptor(socket(found.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (descriptor.get() < 0 || bind(descriptor.get(), found.ai_addr, found.ai_addrlen) != 0 ||
      listen(descriptor.get(), kBacklog) != 0) {
    return Failure(host, std::strerror(errno));
  }
  const absl::StatusOr<uint16_t> port = PortOf(descriptor.get());
  if (!port.ok()) return Failure(host, port.status().message());
  return ListeningSocket{.descriptor = std::move(descriptor), .port = *port};
}

}  // namespace penstock::worker
