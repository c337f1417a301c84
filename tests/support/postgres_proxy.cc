#include "tests/support/postgres_proxy.h"

#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return address;
}

bool WriteAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

// Of a message of the protocol, whose length follows `offset` bytes of it; 0: not all of it is there.
size_t LengthOfMessage(std::string_view bytes, size_t offset) {
  uint32_t length = 0;
  if (bytes.size() < offset + sizeof(length)) return 0;
  std::memcpy(&length, bytes.data() + offset, sizeof(length));
  const size_t whole = offset + be32toh(length);
  return bytes.size() < whole ? 0 : whole;
}

}  // namespace

PostgresProxy::PostgresProxy(const std::string& server_socket) : server_socket_(server_socket) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) perror("pipe2");
  wake_reader_ = FileDescriptor(ends[0]);
  wake_writer_ = FileDescriptor(ends[1]);
  listener_ = FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = AddressOf(folder_.Path(".s.PGSQL.5432"));
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    perror("bind");
  if (listen(listener_.get(), 16) != 0) perror("listen");
  thread_ = std::thread([this] { Serve(); });
}

PostgresProxy::~PostgresProxy() {
  {
    MutexLock lock(&mutex_);
    ends_ = true;
  }
  Wake();
  thread_.join();
}

std::string PostgresProxy::Url(const std::string& database) const {
  return absl::StrCat("postgres://penstock@/", database, "?host=", folder_.path());
}

void PostgresProxy::Wake() { [[maybe_unused]] const ssize_t written = write(wake_writer_.get(), "w", 1); }

void PostgresProxy::LoseAt(int n, Lose what) {
  MutexLock lock(&mutex_);
  fault_ = Fault{.in = n, .what = what};
}

void PostgresProxy::Freeze(bool frozen) {
  {
    MutexLock lock(&mutex_);
    frozen_ = frozen;
  }
  Wake();
}

void PostgresProxy::Cut(bool cut) {
  {
    MutexLock lock(&mutex_);
    cut_ = cut;
  }
  Wake();
}

int PostgresProxy::accepted() const {
  MutexLock lock(&mutex_);
  return accepted_;
}

void PostgresProxy::Accept() {
  auto connection = std::make_unique<Connection>();
  connection->client = FileDescriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  connection->server = FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = AddressOf(server_socket_);
  MutexLock lock(&mutex_);
  ++accepted_;
  if (cut_ ||
      connect(connection->server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return;
  }
  connections_[connection->client.get()] = std::move(connection);
}

int PostgresProxy::CountExchanges(Connection* connection, const std::string& bytes) {
  connection->unread += bytes;
  int exchanges = 0;
  while (true) {
    // The first message has no type. A message of type S ends an exchange.
    const size_t length = LengthOfMessage(connection->unread, connection->started ? 1 : 0);
    if (length == 0) return exchanges;
    if (connection->started && connection->unread[0] == 'S') ++exchanges;
    connection->started = true;
    connection->unread.erase(0, length);
  }
}

std::optional<PostgresProxy::Lose> PostgresProxy::CountDown(int exchanges) {
  MutexLock lock(&mutex_);
  if (!fault_.has_value() || exchanges == 0) return std::nullopt;
  fault_->in -= exchanges;
  if (fault_->in > 0) return std::nullopt;
  const Lose what = fault_->what;
  fault_.reset();
  return what;
}

bool PostgresProxy::ForwardFromClient(Connection* connection, const std::string& bytes) {
  const std::optional<Lose> lost = CountDown(CountExchanges(connection, bytes));
  if (lost == Lose::kRequest) return false;
  if (lost == Lose::kAnswer) connection->loses_answer = true;
  return WriteAll(connection->server.get(), bytes);
}

bool PostgresProxy::Forward(Connection* connection, bool from_client) {
  std::string bytes(1 << 16, '\0');
  const int from = from_client ? connection->client.get() : connection->server.get();
  const ssize_t received = recv(from, bytes.data(), bytes.size(), 0);
  if (received <= 0) return false;
  bytes.resize(static_cast<size_t>(received));
  if (from_client) return ForwardFromClient(connection, bytes);
  // It has come, so the server has done what was asked.
  if (connection->loses_answer) return false;
  return WriteAll(connection->client.get(), bytes);
}

void PostgresProxy::Serve() {
  while (true) {
    bool frozen = false;
    {
      MutexLock lock(&mutex_);
      if (ends_) return;
      if (cut_) connections_.clear();
      frozen = frozen_;
    }
    std::vector<pollfd> watched = {{.fd = wake_reader_.get(), .events = POLLIN, .revents = 0}};
    if (!frozen) {
      watched.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
      for (const auto& [client, connection] : connections_) {
        watched.push_back({.fd = client, .events = POLLIN, .revents = 0});
        watched.push_back({.fd = connection->server.get(), .events = POLLIN, .revents = 0});
      }
    }
    poll(watched.data(), watched.size(), -1);
    if (watched[0].revents != 0) {
      char byte = 0;
      [[maybe_unused]] const ssize_t got = read(wake_reader_.get(), &byte, 1);
      continue;
    }
    if (frozen) continue;
    for (size_t i = 2; i + 1 < watched.size(); i += 2) {
      const auto connection = connections_.find(watched[i].fd);
      const bool open = (watched[i].revents == 0 || Forward(connection->second.get(), true)) &&
                        (watched[i + 1].revents == 0 || Forward(connection->second.get(), false));
      if (!open) connections_.erase(connection);
    }
    if (watched[1].revents != 0) Accept();
  }
}

}  // namespace penstock
