// A real PostgreSQL server of a test's own: in a temporary folder, on a Unix socket in it, gone with its
// scope.
//
//   if (const auto reason = PostgresServer::WhyNot()) GTEST_SKIP() << *reason;
//   PostgresServer* server = PostgresServer::Shared();
//   auto store = OpenEventStore(server->Url(server->NewDatabase()), {});
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/process/child_process.h"
#include "tests/support/temporary_folder.h"

namespace penstock {

class PostgresServer {
 public:
  // Why there is none on this machine; nullopt: there is one.
  static std::optional<std::string> WhyNot();
  // With `flushes` it waits for the disk, as servers do: for measurements. Without, it is faster, and what is
  // committed is safe from a kill all the same, though not from a power failure.
  static absl::StatusOr<std::unique_ptr<PostgresServer>> Start(bool flushes = false);
  // One for all tests of this process, started by the first: that takes a second or two. The running test
  // fails, and it is nullptr, when it does not start.
  static PostgresServer* Shared();
  ~PostgresServer();

  // Lets servers write into a folder.
  static void Admit(const std::string& path);

  // The name of a new database, empty, of the caller's own.
  std::string NewDatabase();
  std::string Url(const std::string& database) const;
  // Where it listens: a Unix socket.
  std::string socket_path() const { return socket_folder_.Path(".s.PGSQL.5432"); }
  // Runs SQL with psql and returns what it prints.
  std::string Sql(const std::string& database, const std::string& sql) const;

  // Without a warning, as a power failure would.
  void Kill();
  // The same with orderly ends of connections.
  void Stop();
  // Again, on the same data.
  absl::Status Restart();

 private:
  explicit PostgresServer(bool flushes) : flushes_(flushes) {}
  absl::Status Initialise();
  absl::Status Run();

  const bool flushes_;
  const TemporaryFolder folder_;
  const TemporaryFolder socket_folder_;
  std::unique_ptr<ChildProcess> process_;
  int databases_ = 0;
};

}  // namespace penstock
