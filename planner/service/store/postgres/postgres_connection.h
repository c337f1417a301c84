// A connection to a PostgreSQL server on which no call waits longer than it may: libpq without its blocking
// calls.
//
//   PostgresConnection connection(url, timeouts);
//   const Deadline deadline = Deadline::After(absl::Seconds(5));
//   PENSTOCK_RETURN_IF_ERROR(connection.Connect(deadline));
//   PENSTOCK_ASSIGN_OR_RETURN(auto results, connection.Run({{.sql = "SELECT $1::bigint", .parameters = {7}}},
//   deadline));
#pragma once

#include <libpq-fe.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "planner/service/store/postgres/deadline.h"
#include "planner/service/store/postgres/postgres_statement.h"

namespace penstock {

// Thread-compatible, but for Stop().
class PostgresConnection {
 public:
  // `statement_timeout`: how long the server works on a statement or waits for a lock before it gives up.
  PostgresConnection(const std::string& url, absl::Duration statement_timeout);

  // Connects when there is no connection. Tries again, with back-off, until the deadline. Possible errors:
  // UNAVAILABLE, CANCELLED.
  absl::Status Connect(Deadline deadline);
  bool connected() const { return PQstatus(handle_.get()) == CONNECTION_OK; }
  void Disconnect();

  // Runs statements in their order, in one round trip, up to the first that fails, whose error is returned;
  // the results of all otherwise. A transaction that is open when one fails was rolled back when this
  // returns, or will be as soon as the server notices that it was disconnected. Possible errors: those of
  // EventStore; UNAVAILABLE when the connection is lost or the deadline over, after which it is not known
  // what the server did.
  absl::StatusOr<std::vector<PostgresResult>> Run(absl::Span<const PostgresStatement> statements,
                                                  Deadline deadline);

  // Runs statements that may be repeated, on a new connection when the one there is was lost.
  absl::StatusOr<std::vector<PostgresResult>> RunRepeatable(absl::Span<const PostgresStatement> statements,
                                                            Deadline deadline);

  // Waits a little longer each time that it is called in vain, until the deadline. Possible errors:
  // CANCELLED, UNAVAILABLE (the deadline is over).
  absl::Status BackOff(Deadline deadline);

  // Rolls back the transaction that is open, if one is.
  void RollBack();

  const std::string& server() const { return server_; }

  // Ends every wait, now and later, with CANCELLED. Thread-safe.
  void Stop() { stop_.Set(); }
  absl::Status Stopped() const;

 private:
  struct Finish {
    void operator()(PGconn* handle) const { PQfinish(handle); }
  };

  // What was sent and will be answered: a statement, or the preparation of one.
  struct Request {
    const char* sql = nullptr;
    bool prepares = false;
  };
  struct Answer {
    // The first of a statement.
    absl::Status error;
    std::vector<PostgresResult> results;
  };

  absl::Status TryConnect(Deadline deadline);
  absl::Status Handshake(Deadline deadline);
  // Settings of the session.
  absl::Status SetUp(Deadline deadline);
  absl::Status Wait(int events, Deadline deadline);

  // Queue one, without waiting.
  absl::Status Send(const PostgresStatement& statement);
  absl::Status SendPrepare(const char* sql);
  absl::Status Flush(Deadline deadline);
  // The next result; nullptr between those of two statements.
  absl::StatusOr<PostgresResult> Receive(Deadline deadline);
  // Those of one statement.
  absl::StatusOr<PostgresResult> ReceiveStatement(Deadline deadline);
  absl::StatusOr<std::vector<Request>> SendAll(absl::Span<const PostgresStatement> statements,
                                               Deadline deadline);
  // Fails when the server did not answer everything.
  absl::StatusOr<Answer> Exchange(absl::Span<const PostgresStatement> statements, Deadline deadline);
  absl::Status Lost() const;

  const std::string url_;
  const std::string server_;
  const absl::Duration statement_timeout_;
  StopEvent stop_;
  std::unique_ptr<PGconn, Finish> handle_;
  // Names of prepared statements by their text.
  std::map<std::string, std::string> prepared_;
  uint64_t next_name_ = 0;
  absl::Duration back_off_ = absl::ZeroDuration();
};

}  // namespace penstock
