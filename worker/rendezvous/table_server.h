// Serves the table of an epoch to its ranks, and to nobody else: each connection must show first that it has
// the epoch's secret (connection_proof.h).
//
// Whoever reaches the port may connect. Until he has shown the secret, a connection costs a descriptor and a
// hundred bytes; of those there are 128 at most, the oldest goes for a new one. A rank needs but a moment,
// and one that had to go comes again (table_client.h): strangers delay ranks, and keep none out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/file_descriptor.h"
#include "worker/rendezvous/caller_session.h"
#include "worker/rendezvous/listening_socket.h"
#include "worker/rendezvous/table.h"

namespace penstock::worker {

// Connections that have not shown the secret yet.
inline constexpr size_t kMostStrangers = 128;

class TableServer {
 public:
  // `host`: a name or an address of this machine. Picks a free port. Its thread ends with it.
  // Possible errors: UNAVAILABLE (names the host; or no descriptor is left).
  static absl::StatusOr<std::unique_ptr<TableServer>> Start(const std::string& host,
                                                            const std::string& secret);
  ~TableServer();
  TableServer(const TableServer&) = delete;
  TableServer& operator=(const TableServer&) = delete;

  uint16_t port() const { return listener_.port; }

 private:
  struct Connection {
    FileDescriptor socket;
    CallerSession session;
  };
  // By the order in which they came.
  using Connections = std::map<Table::Caller, Connection>;

  TableServer(ListeningSocket listener, FileDescriptor wake, std::string key);

  // All on the thread.
  void Run();
  // What happened on each descriptor; the first ones are those of wake_ and of the listener.
  std::vector<short> AwaitEvents();
  int MillisecondsToWait() const;
  void AcceptAll();
  void Add(FileDescriptor socket);
  void MakeRoom();
  // The one that is there longest. False: there is none.
  bool LetStrangerGo();
  // False: the connection is over.
  bool Serve(Table::Caller caller, Connection& connection, short events);
  bool Read(Table::Caller caller, Connection& connection);
  void Send(const std::vector<Table::Due>& due);
  void Refuse(const absl::Status& reason);

  ListeningSocket listener_;
  const FileDescriptor wake_;
  const std::string key_;
  Table table_;
  Connections connections_;
  Table::Caller next_caller_ = 1;
  // The system has no descriptor left: until then nobody is accepted.
  absl::Time accept_from_ = absl::InfinitePast();
  bool has_told_ = false;
  std::thread thread_;
};

}  // namespace penstock::worker
