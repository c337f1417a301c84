#include "tests/integration/store/store_kind.h"

#include "planner/service/store/memory_event_store.h"
#include "planner/service/store/postgres/postgres_event_store.h"
#include "planner/service/store/sqlite/sqlite_event_store.h"
#include "tests/support/postgres_server.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

class MemoryPlace final : public StorePlace {
 public:
  absl::StatusOr<std::unique_ptr<EventStore>> Open() override { return std::make_unique<MemoryEventStore>(); }
};

class SqlitePlace final : public StorePlace {
 public:
  absl::StatusOr<std::unique_ptr<EventStore>> Open() override {
    return SqliteEventStore::Open(folder_.Path("planner.db"));
  }

 private:
  const TemporaryFolder folder_;
};

class PostgresPlace final : public StorePlace {
 public:
  absl::StatusOr<std::unique_ptr<EventStore>> Open() override {
    PostgresServer* server = PostgresServer::Shared();
    if (server == nullptr) return absl::UnavailableError("the PostgreSQL server of this test did not start");
    if (url_.empty()) url_ = server->Url(server->NewDatabase());
    return PostgresEventStore::Open(url_, {});
  }

 private:
  std::string url_;
};

template <typename Place>
std::unique_ptr<StorePlace> Make() {
  return std::make_unique<Place>();
}

}  // namespace

std::vector<StoreKind> AllStores() {
  return {{.name = "Memory", .durable = false, .make = Make<MemoryPlace>},
          {.name = "Sqlite", .make = Make<SqlitePlace>},
          {.name = "Postgres", .skip = PostgresServer::WhyNot, .make = Make<PostgresPlace>}};
}

}  // namespace penstock
