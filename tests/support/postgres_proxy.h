// Stands between a client and a PostgreSQL server and loses what a test says: a request, an answer,
// everything.
//
//   PostgresProxy proxy(server->socket_path());
//   auto store = OpenEventStore(proxy.Url("test1"), {});
//   proxy.LoseAt(2, PostgresProxy::Lose::kAnswer);   // the server does what the second exchange from now
//   asks; nobody hears of it
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/process/file_descriptor.h"
#include "common/sync/sync.h"
#include "tests/support/temporary_folder.h"

namespace penstock {

class PostgresProxy {
 public:
  // What is lost of an exchange; its connection is closed afterwards.
  enum class Lose { kRequest, kAnswer };

  // Over Unix sockets.
  explicit PostgresProxy(const std::string& server_socket);
  ~PostgresProxy();
  PostgresProxy(const PostgresProxy&) = delete;
  PostgresProxy& operator=(const PostgresProxy&) = delete;

  std::string Url(const std::string& database) const;

  // Of the n-th exchange from now (1: the next), a request with all that belongs to it, over any connection.
  void LoseAt(int n, Lose what);
  // Nothing goes through any more, and no connection is closed. With false what waited goes on.
  void Freeze(bool frozen);
  // Closes all connections, and new ones at once, until it is set to false.
  void Cut(bool cut);

  // Connections that were accepted so far.
  int accepted() const;

 private:
  struct Connection {
    FileDescriptor client;
    FileDescriptor server;
    // What the client sent and is not a whole message yet.
    std::string unread;
    bool started = false;
    // The server's next answer is read and not handed on.
    bool loses_answer = false;
  };
  struct Fault {
    int in = 0;
    Lose what = Lose::kRequest;
  };

  void Serve();
  void Accept();
  // False when the connection is to be closed.
  bool Forward(Connection* connection, bool from_client);
  bool ForwardFromClient(Connection* connection, const std::string& bytes);
  // The exchanges that end in `bytes`.
  static int CountExchanges(Connection* connection, const std::string& bytes);
  std::optional<Lose> CountDown(int exchanges);
  void Wake();

  const std::string server_socket_;
  const TemporaryFolder folder_;
  FileDescriptor listener_;
  // Written to when there is something new to do.
  FileDescriptor wake_reader_;
  FileDescriptor wake_writer_;
  std::map<int, std::unique_ptr<Connection>> connections_;

  mutable Mutex mutex_;
  std::optional<Fault> fault_ ABSL_GUARDED_BY(mutex_);
  bool frozen_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  int accepted_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace penstock
