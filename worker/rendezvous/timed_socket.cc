#include "worker/rendezvous/timed_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "common/net/resolve.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

absl::Status Failure(const char* reason) { return absl::UnavailableError(reason); }

absl::Status Await(int socket, short events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return Failure("no answer within the time");
    pollfd watched = {.fd = socket, .events = events, .revents = 0};
    constexpr int64_t kLongest = 3'600'000;
    const int64_t wait = std::min(absl::ToInt64Milliseconds(left) + 1, kLongest);
    const int ready = poll(&watched, 1, static_cast<int>(wait));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Failure(std::strerror(errno));
  }
}

absl::Status ConnectSocket(int socket, const addrinfo& there, absl::Time deadline) {
  if (connect(socket, there.ai_addr, there.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return Failure(std::strerror(errno));
  PENSTOCK_RETURN_IF_ERROR(Await(socket, POLLOUT, deadline));
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? absl::OkStatus() : Failure(std::strerror(error));
}

// What this address may take, for as much to be left for each of those after it.
absl::Time PartOf(absl::Time deadline, const addrinfo& there) {
  int addresses = 0;
  for (const addrinfo* one = &there; one != nullptr; one = one->ai_next) ++addresses;
  const absl::Time now = absl::Now();
  return now + (deadline - now) / addresses;
}

// Whether another try of the call may do, once `events` have come.
bool MayTryAgain() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

absl::StatusOr<FileDescriptor> ConnectTo(const std::string& host, uint16_t port, absl::Time deadline) {
  PENSTOCK_ASSIGN_OR_RETURN(const Addresses found, Resolve(host.c_str(), std::to_string(port)));
  absl::Status failure = absl::OkStatus();
  for (const addrinfo* there = found.get(); there != nullptr; there = there->ai_next) {
    FileDescriptor descriptor(socket(there->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // A family that this machine does not speak.
    failure = descriptor.get() < 0 ? Failure(std::strerror(errno))
                                   : ConnectSocket(descriptor.get(), *there, PartOf(deadline, *there));
    if (!failure.ok()) continue;
    const int at_once = 1;
    setsockopt(descriptor.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
    return descriptor;
  }
  return failure;
}

absl::Status SendAll(int socket, absl::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (!MayTryAgain()) {
      return Failure(std::strerror(errno));
    } else {
      PENSTOCK_RETURN_IF_ERROR(Await(socket, POLLOUT, deadline));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Receive(int socket, size_t count, absl::Time deadline) {
  std::string bytes(count, '\0');
  size_t received = 0;
  while (received < count) {
    const ssize_t part = recv(socket, bytes.data() + received, count - received, 0);
    if (part == 0) return Failure("the other end has closed the connection");
    if (part > 0) {
      received += static_cast<size_t>(part);
    } else if (!MayTryAgain()) {
      return Failure(std::strerror(errno));
    } else {
      PENSTOCK_RETURN_IF_ERROR(Await(socket, POLLIN, deadline));
    }
  }
  return bytes;
}

}  // namespace penstock::worker
