#include "worker/rendezvous/listening_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

// Connections that wait to be accepted: all ranks of a large job come at once.
constexpr int kBacklog = 4096;

absl::Status Failure(const std::string& host, const char* reason) {
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
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0)
    return Failure(host, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  FileDescriptor descriptor(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (descriptor.get() < 0 || bind(descriptor.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(descriptor.get(), kBacklog) != 0) {
    return Failure(host, std::strerror(errno));
  }
  const absl::StatusOr<uint16_t> port = PortOf(descriptor.get());
  if (!port.ok()) return Failure(host, std::string(port.status().message()).c_str());
  return ListeningSocket{.descriptor = std::move(descriptor), .port = *port};
}

}  // namespace penstock::worker
