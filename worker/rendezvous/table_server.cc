#include "worker/rendezvous/table_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/logging/logging.h"
#include "common/secret/random_secret.h"
#include "common/status/status_macros.h"
#include "common/sync/thread_name.h"

namespace penstock::worker {
namespace {

static_assert(kChallengeBytes == kSecretBytes);

// Descriptors that are watched before those of connections.
constexpr size_t kOwnDescriptors = 2;
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
// In one turn: of those who may be strangers, only so many are newer than a rank that is about to answer.
constexpr size_t kAcceptedAtOnce = kMostStrangers / 8;
constexpr size_t kReadBytes = size_t{64} << 10;

bool MustWait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

template <typename Entry>
bool IsStranger(const Entry& entry) {
  return !entry.second.session.proven();
}

// Sends what the socket takes. False: the connection is over.
bool Flush(int socket, std::string& outgoing) {
  while (!outgoing.empty()) {
    const ssize_t sent = send(socket, outgoing.data(), outgoing.size(), MSG_NOSIGNAL);
    if (sent < 0) return MustWait();
    outgoing.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableServer>> TableServer::Start(const std::string& host,
                                                                const std::string& secret) {
  PENSTOCK_ASSIGN_OR_RETURN(ListeningSocket listener, ListenOn(host));
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC));
  if (wake.get() < 0 || fcntl(listener.descriptor.get(), F_SETFL, O_NONBLOCK) != 0)
    return absl::UnavailableError(absl::StrCat("cannot serve the rendezvous: ", std::strerror(errno)));
  return std::unique_ptr<TableServer>(
      new TableServer(std::move(listener), std::move(wake), ConnectionKey(secret)));
}

TableServer::TableServer(ListeningSocket listener, FileDescriptor wake, std::string key)
    : listener_(std::move(listener)),
      wake_(std::move(wake)),
      key_(std::move(key)),
      thread_([this] { Run(); }) {}

TableServer::~TableServer() {
  const eventfd_t end = 1;
  eventfd_write(wake_.get(), end);
  thread_.join();
}

void TableServer::Run() {
  NameThisThread("rendezvous");
  while (true) {
    const std::vector<short> events = AwaitEvents();
    if (events[0] != 0) return;
    size_t next = kOwnDescriptors;
    for (auto at = connections_.begin(); at != connections_.end();) {
      if (Serve(at->first, at->second, events[next++])) {
        ++at;
        continue;
      }
      table_.Forget(at->first);
      at = connections_.erase(at);
    }
    Send(table_.Expire(absl::Now()));
    if (events[1] != 0) AcceptAll();
  }
}

std::vector<short> TableServer::AwaitEvents() {
  std::vector<pollfd> watched = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  // poll passes over negative ones.
  const bool accepts = absl::Now() >= accept_from_;
  watched.push_back({.fd = accepts ? listener_.descriptor.get() : -1, .events = POLLIN, .revents = 0});
  for (auto& [_, connection] : connections_) {
    const bool sends = !connection.session.outgoing().empty();
    watched.push_back({.fd = connection.socket.get(),
                       .events = static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN),
                       .revents = 0});
  }
  std::vector<short> events(watched.size(), 0);
  if (poll(watched.data(), watched.size(), MillisecondsToWait()) > 0) {
    std::ranges::transform(watched, events.begin(), [](const pollfd& one) { return one.revents; });
  }
  return events;
}

int TableServer::MillisecondsToWait() const {
  const absl::Time now = absl::Now();
  const absl::Time until =
      std::min(table_.next_expiry(), accept_from_ > now ? accept_from_ : absl::InfiniteFuture());
  if (until == absl::InfiniteFuture()) return -1;
  constexpr int64_t kLongest = 3'600'000;
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(until - now) + 1, 0, kLongest));
}

void TableServer::AcceptAll() {
  for (size_t i = 0; i < kAcceptedAtOnce; ++i) {
    FileDescriptor socket(
        accept4(listener_.descriptor.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() >= 0) {
      Add(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (!LetStrangerGo()) accept_from_ = absl::Now() + kAcceptPause;
      return;
    } else if (MustWait()) {
      return;
    }
  }
}

void TableServer::Add(FileDescriptor socket) {
  const absl::StatusOr<std::string> challenge = RandomSecret();
  if (!challenge.ok()) return Refuse(challenge.status());
  MakeRoom();
  const int at_once = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
  Connection connection{.socket = std::move(socket), .session = {key_, *challenge}};
  if (Flush(connection.socket.get(), connection.session.outgoing()))
    connections_.emplace(next_caller_++, std::move(connection));
}

void TableServer::MakeRoom() {
  // Not told: they may be ranks, which come all at once, and come again.
  if (static_cast<size_t>(std::ranges::count_if(connections_, IsStranger<Connections::value_type>)) >=
      kMostStrangers)
    LetStrangerGo();
}

bool TableServer::LetStrangerGo() {
  const auto oldest = std::ranges::find_if(connections_, IsStranger<Connections::value_type>);
  if (oldest == connections_.end()) return false;
  connections_.erase(oldest);
  return true;
}

bool TableServer::Serve(Table::Caller caller, Connection& connection, short events) {
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !Read(caller, connection)) return false;
  return Flush(connection.socket.get(), connection.session.outgoing());
}

bool TableServer::Read(Table::Caller caller, Connection& connection) {
  std::array<char, kReadBytes> bytes;
  const ssize_t count = recv(connection.socket.get(), bytes.data(), bytes.size(), 0);
  if (count < 0) return MustWait();
  if (count == 0) return false;
  const auto requests = connection.session.Take({bytes.data(), static_cast<size_t>(count)});
  if (!requests.ok()) {
    Refuse(requests.status());
    return false;
  }
  for (const TableRequest& request : *requests) Send(table_.Apply(caller, request, absl::Now()));
  return true;
}

void TableServer::Send(const std::vector<Table::Due>& due) {
  for (const Table::Due& one : due) {
    const auto found = connections_.find(one.caller);
    if (found == connections_.end()) continue;
    found->second.session.Answer(one.answer);
    // One that is over is noticed when it is served next.
    Flush(found->second.socket.get(), found->second.session.outgoing());
  }
}

// Once: a stranger must not fill the log.
void TableServer::Refuse(const absl::Status& reason) {
  if (std::exchange(has_told_, true)) return;
  LogWarning("a stranger reaches the rendezvous, and was refused: keep the workers' network (--host) to them",
             {{"reason", reason.message()}});
}

}  // namespace penstock::worker
