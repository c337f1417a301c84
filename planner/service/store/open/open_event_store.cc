#include "planner/service/store/open/open_event_store.h"

#include <libpq-fe.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/service/store/memory_event_store.h"
#include "planner/service/store/postgres/postgres_error.h"
#include "planner/service/store/postgres/postgres_event_store.h"
#include "planner/service/store/postgres/postgres_lease.h"
#include "planner/service/store/sole_lease.h"
#include "planner/service/store/sqlite/sqlite_event_store.h"

namespace penstock {
namespace {

constexpr absl::string_view kSqlite = "sqlite:";

bool IsMemory(const std::string& url) { return url == "memory"; }
bool IsSqlite(const std::string& url) { return absl::StartsWith(url, kSqlite); }
bool IsPostgres(const std::string& url) {
  return absl::StartsWith(url, "postgres://") || absl::StartsWith(url, "postgresql://");
}

// The password of a URL must not get into a log.
absl::Status CheckPostgresUrl(const std::string& url, const std::string& flag) {
  char* text = nullptr;
  PQconninfoOption* options = PQconninfoParse(url.c_str(), &text);
  const absl::Status status =
      options != nullptr
          ? absl::OkStatus()
          : absl::InvalidArgumentError(absl::StrCat(flag, ": ", text == nullptr ? "not a URL" : text,
                                                    "; use postgres://USER@HOST/NAME"));
  PQconninfoFree(options);
  PQfreemem(text);
  return status;
}

template <typename Base, typename Opened>
absl::StatusOr<std::unique_ptr<Base>> As(absl::StatusOr<std::unique_ptr<Opened>> opened,
                                         const std::string& flag) {
  if (!opened.ok()) return AnnotateError(opened.status(), flag);
  return *std::move(opened);
}

}  // namespace

absl::Status CheckStoreUrl(const std::string& url, const std::string& flag) {
  if (IsMemory(url)) return absl::OkStatus();
  if (IsPostgres(url)) return CheckPostgresUrl(url, flag);
  if (IsSqlite(url) && url.size() > kSqlite.size()) return absl::OkStatus();
  const std::string given = IsSqlite(url) ? "has no path" : absl::StrCat("'", url, "' is not a store");
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": ", given, "; use memory, sqlite:PATH or postgres://USER@HOST/NAME"));
}

bool IsSharedStore(const std::string& url) { return IsPostgres(url); }

std::string StoreName(const std::string& url) { return IsPostgres(url) ? ServerOf(url) : url; }

absl::StatusOr<std::unique_ptr<EventStore>> OpenEventStore(const std::string& url,
                                                           const StoreOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckStoreUrl(url, options.flag));
  if (IsMemory(url)) return std::make_unique<MemoryEventStore>();
  if (IsSqlite(url)) return As<EventStore>(SqliteEventStore::Open(url.substr(kSqlite.size())), options.flag);
  return As<EventStore>(PostgresEventStore::Open(url, {.term = options.term,
                                                       .call_timeout = options.call_timeout,
                                                       .load_timeout = options.load_timeout}),
                        options.flag);
}

absl::StatusOr<std::unique_ptr<Lease>> OpenLease(const std::string& url, const LeaseOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckStoreUrl(url, options.flag));
  if (!IsPostgres(url)) return std::make_unique<SoleLease>();
  return As<Lease>(
      PostgresLease::Open(url, {.time_to_live = options.time_to_live, .call_timeout = options.call_timeout}),
      options.flag);
}

}  // namespace penstock
