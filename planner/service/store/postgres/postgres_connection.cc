#include "planner/service/store/postgres/postgres_connection.h"

#include <endian.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/service/store/postgres/postgres_error.h"

namespace penstock {
namespace {

// Pauses between attempts grow from the first to the last.
constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
constexpr absl::Duration kLastPause = absl::Seconds(1);
// How long one attempt to connect may take, so that a server that is silent does not take all the time there
// is.
constexpr absl::Duration kAttempt = absl::Seconds(3);
// How long a rollback may take, after which the connection is given up.
constexpr absl::Duration kRollBack = absl::Seconds(1);
// A transaction whose planner says nothing for so long is rolled back by the server: its locks hold up
// whoever takes over.
constexpr absl::Duration kIdleInTransaction = absl::Seconds(2);

constexpr int kBinary = 1;

void IgnoreNotice(void* /*unused*/, const char* /*message*/) {}

// Parameters in the form that libpq takes them. Numbers are kept here, bytes are the caller's.
class Parameters {
 public:
  explicit Parameters(const std::vector<PostgresValue>& values) {
    // Pointers into it must stay.
    numbers_.reserve(values.size());
    for (const PostgresValue& value : values) Add(value);
  }
  int size() const { return static_cast<int>(pointers_.size()); }
  const char* const* pointers() const { return pointers_.data(); }
  const int* lengths() const { return lengths_.data(); }
  const int* formats() const { return formats_.data(); }

 private:
  void Add(const PostgresValue& value) {
    formats_.push_back(kBinary);
    if (const auto* number = std::get_if<uint64_t>(&value)) {
      numbers_.push_back(htobe64(*number));
      pointers_.push_back(reinterpret_cast<const char*>(&numbers_.back()));
      lengths_.push_back(sizeof(uint64_t));
    } else {
      const auto bytes = std::get<absl::string_view>(value);
      // A null pointer would be NULL, not empty bytes.
      pointers_.push_back(bytes.data() == nullptr ? "" : bytes.data());
      lengths_.push_back(static_cast<int>(bytes.size()));
    }
  }

  std::vector<uint64_t> numbers_;
  std::vector<const char*> pointers_;
  std::vector<int> lengths_;
  std::vector<int> formats_;
};

// Between half of it and all of it: planners that lost the same server do not come back in step.
absl::Duration WithJitter(absl::Duration time) {
  static thread_local std::minstd_rand random(std::random_device{}());
  return time * std::uniform_real_distribution<double>(0.5, 1)(random);
}

bool Succeeded(const PostgresResult& result) {
  const ExecStatusType status = PQresultStatus(result.get());
  return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

}  // namespace

PostgresConnection::PostgresConnection(const std::string& url, absl::Duration statement_timeout)
    : url_(url), server_(ServerOf(url)), statement_timeout_(statement_timeout) {}

absl::Status PostgresConnection::Stopped() const {
  return stop_.is_set() ? absl::CancelledError("the store was stopped") : absl::OkStatus();
}

absl::Status PostgresConnection::Lost() const {
  return ConnectionError(handle_ == nullptr ? "not connected" : PQerrorMessage(handle_.get()), server_);
}

void PostgresConnection::Disconnect() {
  handle_.reset();
  prepared_.clear();
}

absl::Status PostgresConnection::Wait(int events, Deadline deadline) {
  while (true) {
    const int ready = stop_.Wait(PQsocket(handle_.get()), events, deadline.left());
    PENSTOCK_RETURN_IF_ERROR(Stopped());
    if (ready != 0) return absl::OkStatus();
    if (deadline.is_over()) return ConnectionError("it does not answer in time", server_);
  }
}

absl::Status PostgresConnection::BackOff(Deadline deadline) {
  back_off_ = std::clamp(back_off_ * 2, kFirstPause, kLastPause);
  const Deadline pause = deadline.SoonerOf(WithJitter(back_off_));
  while (!pause.is_over() && !stop_.is_set()) stop_.Wait(-1, 0, pause.left());
  PENSTOCK_RETURN_IF_ERROR(Stopped());
  return deadline.is_over() ? absl::UnavailableError("no time is left") : absl::OkStatus();
}

absl::Status PostgresConnection::Connect(Deadline deadline) {
  PENSTOCK_RETURN_IF_ERROR(Stopped());
  absl::Status before;
  while (!connected()) {
    const absl::Status status = TryConnect(deadline.SoonerOf(kAttempt));
    if (status.ok()) break;
    Disconnect();
    PENSTOCK_RETURN_IF_ERROR(Stopped());
    if (!absl::IsUnavailable(status)) return status;
    // An attempt that was cut short says less than the one before it.
    if (deadline.is_over() && !before.ok()) return before;
    if (!BackOff(deadline).ok()) return status;
    before = status;
  }
  return absl::OkStatus();
}

absl::Status PostgresConnection::TryConnect(Deadline deadline) {
  Disconnect();
  // What the URL says comes last and counts. tcp_user_timeout: a server that vanished is noticed, and the
  // next of several hosts tried. read-write: of several hosts, the one that takes writes.
  const char* names[] = {"application_name", "tcp_user_timeout", "target_session_attrs", "dbname", nullptr};
  const char* values[] = {"penstock-planner", "2000", "read-write", url_.c_str(), nullptr};
  // Looks host names up without a deadline of ours: use addresses where the resolver is slow.
  handle_.reset(PQconnectStartParams(names, values, /*expand_dbname=*/1));
  PENSTOCK_RETURN_IF_ERROR(Handshake(deadline));
  PQsetNoticeProcessor(handle_.get(), IgnoreNotice, nullptr);
  if (PQsetnonblocking(handle_.get(), 1) != 0 || PQenterPipelineMode(handle_.get()) != 1) return Lost();
  PENSTOCK_RETURN_IF_ERROR(SetUp(deadline));
  back_off_ = absl::ZeroDuration();
  return absl::OkStatus();
}

absl::Status PostgresConnection::Handshake(Deadline deadline) {
  if (PQstatus(handle_.get()) == CONNECTION_BAD) return Lost();
  PostgresPollingStatusType next = PGRES_POLLING_WRITING;
  while (next != PGRES_POLLING_OK) {
    if (next == PGRES_POLLING_FAILED) return Lost();
    PENSTOCK_RETURN_IF_ERROR(Wait(next == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline));
    next = PQconnectPoll(handle_.get());
  }
  return absl::OkStatus();
}

absl::Status PostgresConnection::SetUp(Deadline deadline) {
  const std::string timeout = absl::StrCat(absl::ToInt64Milliseconds(statement_timeout_));
  const std::string idle = absl::StrCat(absl::ToInt64Milliseconds(kIdleInTransaction));
  constexpr char kSet[] = "SELECT set_config($1, $2, false)";
  return Run({{.sql = kSet, .parameters = {"statement_timeout", timeout}},
              {.sql = kSet, .parameters = {"lock_timeout", timeout}},
              {.sql = kSet, .parameters = {"idle_in_transaction_session_timeout", idle}},
              // A commit is on the server's disk when it returns, whatever the server's default.
              {.sql = "SELECT set_config('synchronous_commit', 'on', false) "
                      "WHERE current_setting('synchronous_commit') IN ('off', 'local')"}},
             deadline)
      .status();
}

absl::Status PostgresConnection::SendPrepare(const char* sql) {
  const std::string name = absl::StrCat("s", next_name_++);
  if (PQsendPrepare(handle_.get(), name.c_str(), sql, 0, nullptr) != 1) return Lost();
  prepared_[sql] = name;
  return absl::OkStatus();
}

absl::Status PostgresConnection::Send(const PostgresStatement& statement) {
  const Parameters parameters(statement.parameters);
  const int sent =
      PQsendQueryPrepared(handle_.get(), prepared_.at(statement.sql).c_str(), parameters.size(),
                          parameters.pointers(), parameters.lengths(), parameters.formats(), kBinary);
  return sent == 1 ? absl::OkStatus() : Lost();
}

absl::Status PostgresConnection::Flush(Deadline deadline) {
  while (true) {
    const int left = PQflush(handle_.get());
    if (left == 0) return absl::OkStatus();
    if (left < 0) return Lost();
    // The server stops to read when nobody reads what it answers.
    PENSTOCK_RETURN_IF_ERROR(Wait(POLLIN | POLLOUT, deadline));
    if (PQconsumeInput(handle_.get()) != 1) return Lost();
  }
}

absl::StatusOr<PostgresResult> PostgresConnection::Receive(Deadline deadline) {
  while (PQisBusy(handle_.get()) == 1) {
    PENSTOCK_RETURN_IF_ERROR(Wait(POLLIN, deadline));
    if (PQconsumeInput(handle_.get()) != 1) return Lost();
  }
  return PostgresResult(PQgetResult(handle_.get()));
}

absl::StatusOr<PostgresResult> PostgresConnection::ReceiveStatement(Deadline deadline) {
  PENSTOCK_ASSIGN_OR_RETURN(PostgresResult result, Receive(deadline));
  if (result.get() == nullptr || !connected()) return Lost();
  PENSTOCK_ASSIGN_OR_RETURN(const PostgresResult end, Receive(deadline));
  if (end.get() != nullptr) return Lost();
  return result;
}

absl::StatusOr<std::vector<PostgresConnection::Request>> PostgresConnection::SendAll(
    absl::Span<const PostgresStatement> statements, Deadline deadline) {
  std::vector<Request> requests;
  for (const PostgresStatement& statement : statements) {
    if (!prepared_.contains(statement.sql)) {
      PENSTOCK_RETURN_IF_ERROR(SendPrepare(statement.sql));
      requests.push_back({.sql = statement.sql, .prepares = true});
    }
    PENSTOCK_RETURN_IF_ERROR(Send(statement));
    requests.push_back({.sql = statement.sql, .prepares = false});
  }
  if (PQpipelineSync(handle_.get()) != 1) return Lost();
  PENSTOCK_RETURN_IF_ERROR(Flush(deadline));
  return requests;
}

absl::StatusOr<PostgresConnection::Answer> PostgresConnection::Exchange(
    absl::Span<const PostgresStatement> statements, Deadline deadline) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Request> requests, SendAll(statements, deadline));
  Answer answer;
  for (const Request& request : requests) {
    PENSTOCK_ASSIGN_OR_RETURN(PostgresResult result, ReceiveStatement(deadline));
    // After the first error the server skips what follows.
    if (!Succeeded(result)) {
      if (answer.error.ok()) answer.error = PostgresError(result.get(), server_);
      if (request.prepares) prepared_.erase(request.sql);
    } else if (!request.prepares) {
      answer.results.push_back(std::move(result));
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(const PostgresResult sync, Receive(deadline));
  if (sync.get() == nullptr || PQresultStatus(sync.get()) != PGRES_PIPELINE_SYNC) return Lost();
  return answer;
}

absl::StatusOr<std::vector<PostgresResult>> PostgresConnection::Run(
    absl::Span<const PostgresStatement> statements, Deadline deadline) {
  PENSTOCK_RETURN_IF_ERROR(Stopped());
  if (!connected()) return Lost();
  auto answer = Exchange(statements, deadline);
  if (!answer.ok()) {
    // An answer may still come, or never: the connection is of no use. The server rolls back when it is gone.
    Disconnect();
    return answer.status();
  }
  if (!answer->error.ok()) {
    RollBack();
    return answer->error;
  }
  return std::move(answer->results);
}

absl::StatusOr<std::vector<PostgresResult>> PostgresConnection::RunRepeatable(
    absl::Span<const PostgresStatement> statements, Deadline deadline) {
  while (true) {
    PENSTOCK_RETURN_IF_ERROR(Connect(deadline));
    auto results = Run(statements, deadline);
    const bool lost = results.status().code() == absl::StatusCode::kUnavailable && !connected();
    if (!lost || !BackOff(deadline).ok()) return results;
  }
}

void PostgresConnection::RollBack() {
  if (!connected() || PQtransactionStatus(handle_.get()) == PQTRANS_IDLE) return;
  const auto answer = Exchange({{.sql = "ROLLBACK"}}, Deadline::After(kRollBack));
  if (!answer.ok() || !answer->error.ok()) Disconnect();
}

}  // namespace penstock
