// PostgreSQL stores as an operator meets them: connections that are lost at every moment, servers that stop,
// start, hang or cannot be written, databases of other versions.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "planner/service/store/postgres/postgres_event_store.h"
#include "planner/service/store/postgres/postgres_schema.h"
#include "tests/integration/store/changes.h"
#include "tests/support/postgres_fixture.h"
#include "tests/support/postgres_proxy.h"
#include "tests/support/small_disk.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::Not;

// Of calls that are meant to end with it.
constexpr absl::Duration kBrief = absl::Milliseconds(700);

class PostgresStoreTest : public PostgresFixture {
 protected:
  void SetUp() override {
    PostgresFixture::SetUp();
    if (server_ == nullptr) return;
    proxy_ = std::make_unique<PostgresProxy>(server_->socket_path());
    store_ = Open(ProxyUrl());
  }

  // Tries again while the server does not answer, as on a busy machine within a brief time-out.
  static std::unique_ptr<PostgresEventStore> Open(const std::string& url,
                                                  const PostgresStoreOptions& options = {}) {
    const Deadline deadline = Deadline::After(absl::Seconds(20));
    auto store = PostgresEventStore::Open(url, options);
    while (absl::IsUnavailable(store.status()) && !deadline.is_over()) {
      store = PostgresEventStore::Open(url, options);
    }
    EXPECT_THAT(store, IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

  absl::Status Commit(std::vector<JobChange> changes) { return store_->Commit(changes); }

  // Commits again while the store says that trying again may help: on a busy machine a brief time-out may be
  // too brief.
  absl::Status CommitAtLast(std::vector<JobChange> changes) {
    const Deadline deadline = Deadline::After(absl::Seconds(20));
    absl::Status status = Commit(changes);
    while (absl::IsUnavailable(status) && !deadline.is_over()) status = Commit(changes);
    return status;
  }

  std::string ProxyUrl() const { return proxy_->Url(database_); }

  std::unique_ptr<PostgresProxy> proxy_;
  std::unique_ptr<PostgresEventStore> store_;
};

// Servers make large values smaller where they can.
std::string Incompressible(size_t size) {
  std::minstd_rand random(1);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() >> 8);
  return bytes;
}

// --- Lost connections ---

// A commit is two exchanges on a connection that is there: what is stored, what is written.
TEST_F(PostgresStoreTest, ACommitWhoseConnectionIsLostBeforeTheServerHearsOfItIsDoneOnce) {
  ASSERT_THAT(Commit({Append(1, 1, 1)}), IsOk());
  for (int exchange : {1, 2}) {
    proxy_->LoseAt(exchange, PostgresProxy::Lose::kRequest);
    EXPECT_THAT(Commit({Append(1, 1 + exchange, 1)}), IsOk());
  }
  EXPECT_THAT(*store_->Load(), ElementsAre(HasEvents(1, 1, 3)));
}

TEST_F(PostgresStoreTest, ACommitWhoseAnswerIsLostIsDoneOnce) {
  ASSERT_THAT(Commit({Append(1, 1, 1)}), IsOk());
  for (int exchange : {1, 2}) {
    const int before = proxy_->accepted();
    proxy_->LoseAt(exchange, PostgresProxy::Lose::kAnswer);
    EXPECT_THAT(Commit({Append(1, 1 + exchange, 1), AddBatch(1, exchange, "batch")}), IsOk());
    EXPECT_GT(proxy_->accepted(), before);
  }
  EXPECT_THAT(*store_->Load(), ElementsAre(HasEvents(1, 1, 3)));
}

TEST_F(PostgresStoreTest, ACommitWhoseAnswerIsLostAndThatIsRepeatedWithOthersIsDoneOnce) {
  store_ = Open(ProxyUrl(), {.call_timeout = kBrief});
  ASSERT_THAT(CommitAtLast({Append(1, 1, 1)}), IsOk());
  proxy_->LoseAt(2, PostgresProxy::Lose::kAnswer);
  const int before = proxy_->accepted();
  std::atomic<bool> ended = false;
  std::thread cutter([&] {
    // As soon as the answer is lost nobody is let in again: the commit ends without knowing.
    while (proxy_->accepted() == before && !ended) std::this_thread::yield();
    proxy_->Cut(true);
  });
  const absl::Status status = Commit({Append(1, 2, 1)});
  ended = true;
  cutter.join();
  proxy_->Cut(false);
  if (!status.ok()) {
    EXPECT_THAT(status, Fails(StatusCode::kUnavailable, "store 'postgres://"));
  }
  std::vector<JobChange> again = {Append(1, 3, 1)};
  if (!status.ok()) again.insert(again.begin(), Append(1, 2, 1));
  ASSERT_THAT(CommitAtLast(again), IsOk());
  EXPECT_THAT(*store_->Load(), ElementsAre(HasEvents(1, 1, 3)));
}

TEST_F(PostgresStoreTest, WhileTheServerCannotBeReachedCallsEndInTime) {
  store_ = Open(ProxyUrl(), {.call_timeout = kBrief});
  ASSERT_THAT(CommitAtLast({Append(1, 1, 1)}), IsOk());
  proxy_->Cut(true);
  const absl::Time start = absl::Now();
  EXPECT_THAT(Commit({Append(1, 2, 1)}), Fails(StatusCode::kUnavailable, "see that the server runs"));
  EXPECT_THAT(store_->Check(), Fails(StatusCode::kUnavailable, "postgres://"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  proxy_->Cut(false);
  EXPECT_THAT(CommitAtLast({Append(1, 2, 1)}), IsOk());
}

TEST_F(PostgresStoreTest, AServerThatIsSilentDoesNotHoldACallForEver) {
  store_ = Open(ProxyUrl(), {.call_timeout = kBrief});
  ASSERT_THAT(CommitAtLast({Append(1, 1, 1)}), IsOk());
  proxy_->Freeze(true);
  const absl::Time start = absl::Now();
  EXPECT_THAT(Commit({Append(1, 2, 1)}), Fails(StatusCode::kUnavailable, "does not answer in time"));
  EXPECT_THAT(store_->GetBatch(1, 1), Fails(StatusCode::kUnavailable, "does not answer in time"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  proxy_->Freeze(false);
  EXPECT_THAT(CommitAtLast({Append(1, 2, 1)}), IsOk());
  EXPECT_THAT(*store_->Load(), ElementsAre(HasEvents(1, 1, 2)));
}

TEST_F(PostgresStoreTest, StopEndsACallThatWaits) {
  ASSERT_THAT(Commit({Append(1, 1, 1)}), IsOk());
  proxy_->Freeze(true);
  const absl::Time start = absl::Now();
  std::thread stopper([&] { store_->Stop(); });
  EXPECT_THAT(Commit({Append(1, 2, 1)}), Fails(StatusCode::kCancelled, "stopped"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(4));
  stopper.join();
}

TEST_F(PostgresStoreTest, PasswordsAreNotInMessages) {
  const auto store = PostgresEventStore::Open("postgres://me:secret@/none?host=/nowhere",
                                              {.call_timeout = absl::Milliseconds(50)});
  EXPECT_THAT(store, Fails(StatusCode::kUnavailable, "postgres:///nowhere"));
  EXPECT_THAT(store, Not(Fails(StatusCode::kUnavailable, "secret")));
}

// --- Servers ---

TEST_F(PostgresStoreTest, WhatWasAnsweredIsThereAfterTheServerWasKilled) {
  int committed = 0;
  for (; committed < 20; ++committed) ASSERT_THAT(Commit({Append(1, 1 + committed, 1)}), IsOk());
  server_->Kill();
  ASSERT_THAT(server_->Restart(), IsOk());
  EXPECT_THAT(*store_->Load(), ElementsAre(HasEvents(1, 1, committed)));
  EXPECT_THAT(Commit({Append(1, 1 + committed, 1)}), IsOk());
}

TEST_F(PostgresStoreTest, ACommitWaitsForAServerThatRestarts) {
  store_ = Open(url_, {.call_timeout = absl::Seconds(30)});
  ASSERT_THAT(Commit({Append(1, 1, 1)}), IsOk());
  server_->Stop();
  std::thread writer([&] { EXPECT_THAT(Commit({Append(1, 2, 1)}), IsOk()); });
  EXPECT_THAT(server_->Restart(), IsOk());
  writer.join();
}

TEST_F(PostgresStoreTest, AServerThatCannotBeWrittenIsNamed) {
  Sql(absl::StrCat("ALTER DATABASE ", database_, " SET default_transaction_read_only = on"));
  const auto opened = PostgresEventStore::Open(url_, {.call_timeout = kBrief});
  EXPECT_THAT(opened, Fails(StatusCode::kUnavailable, "read-only"));
}

TEST_F(PostgresStoreTest, ATransactionThatCannotWriteIsAPersonsAffair) {
  Sql("CREATE ROLE guest LOGIN; "
      "GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO guest");
  std::string url = url_;
  url.replace(url.find("penstock@"), 9, "guest@");
  const auto store = Open(url);
  EXPECT_THAT(store->Commit({Append(1, 1, 1)}), Fails(StatusCode::kFailedPrecondition, "permission denied"));
  EXPECT_THAT(Commit({Append(1, 1, 1)}), IsOk());
}

TEST_F(PostgresStoreTest, ACommitIsFlushedWhateverTheServersDefault) {
  for (const auto& [given, used] :
       {std::pair("off", "on"), {"local", "on"}, {"remote_apply", "remote_apply"}}) {
    Sql(absl::StrCat("ALTER DATABASE ", database_, " SET synchronous_commit = ", given));
    PostgresConnection connection(url_, absl::Seconds(5));
    const auto setting = connection.RunRepeatable({{.sql = "SELECT current_setting('synchronous_commit')"}},
                                                  Deadline::After(absl::Seconds(20)));
    ASSERT_THAT(setting, IsOk());
    EXPECT_EQ(setting->front().Bytes(0, 0), used);
  }
}

TEST_F(PostgresStoreTest, AFullDiskRefusesACommitAndGoesOnByItselfWhenThereIsRoom) {
  const TemporaryFolder folder;
  const auto disk = SmallDisk::Mount(folder.path(), 8 << 20);
  if (!disk.ok()) GTEST_SKIP() << disk.status();
  PostgresServer::Admit(folder.path());
  // A server that sees the disk: started after it.
  const auto server = PostgresServer::Start();
  ASSERT_THAT(server, IsOk());
  const std::string database = (*server)->NewDatabase();
  const auto store = Open((*server)->Url(database));
  (*server)->Sql(database, absl::StrCat("CREATE TABLESPACE small LOCATION '", folder.path(), "'"));
  (*server)->Sql(database, "ALTER TABLE penstock_batches SET TABLESPACE small");
  ASSERT_THAT(store->Commit({Append(1, 1, 1)}), IsOk());
  (*disk)->Fill();
  JobChange change = Append(1, 2, 1);
  change.batches = {{0, Incompressible(200'000)}};
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_THAT(store->Commit({change}),
                Fails(StatusCode::kResourceExhausted, "make room on the server's disk"));
  }
  EXPECT_THAT(*store->Load(), ElementsAre(HasEvents(1, 1, 1)));
  (*disk)->MakeRoom();
  EXPECT_THAT(store->Commit({change}), IsOk());
  EXPECT_THAT(*store->Load(), ElementsAre(HasEvents(1, 1, 2)));
}

TEST_F(PostgresStoreTest, TablesThatWereRemovedAreNamed) {
  Sql("DROP TABLE penstock_events");
  EXPECT_THAT(Commit({Append(1, 1, 1)}), Fails(StatusCode::kFailedPrecondition, "penstock_events"));
}

TEST_F(PostgresStoreTest, ALockThatIsHeldTooLongEndsACommitAndLeavesNothing) {
  store_ = Open(url_, {.call_timeout = absl::Seconds(1)});
  ASSERT_THAT(CommitAtLast({Append(1, 1, 1)}), IsOk());
  PostgresConnection other(url_, absl::Seconds(5));
  const Deadline deadline = Deadline::After(absl::Seconds(20));
  ASSERT_THAT(other.Connect(deadline), IsOk());
  ASSERT_THAT(other.Run({{.sql = "BEGIN"},
                         {.sql = "SET LOCAL idle_in_transaction_session_timeout = 0"},
                         {.sql = "SELECT 1 FROM penstock_store FOR UPDATE"}},
                        deadline),
              IsOk());
  EXPECT_THAT(Commit({Append(1, 2, 1)}), Fails(StatusCode::kUnavailable, "store 'postgres://"));
  other.RollBack();
  EXPECT_THAT(CommitAtLast({Append(1, 2, 1)}), IsOk());
}

TEST_F(PostgresStoreTest, ADamagedRecordIsFound) {
  ASSERT_THAT(Commit({Append(1, 1, 3), AddBatch(1, 0, "batch")}), IsOk());
  Sql("UPDATE penstock_batches SET bytes = 'Batch'");
  EXPECT_THAT(store_->GetBatch(1, 0), Fails(StatusCode::kDataLoss, "the batch 0 of job 1"));
  Sql("DELETE FROM penstock_events WHERE sequence = 2");
  EXPECT_THAT(store_->Load(), Fails(StatusCode::kDataLoss, "the event 3 of job 1 is not where it belongs"));
}

// --- Versions ---

TEST_F(PostgresStoreTest, ADatabaseOfANewerVersionIsRefused) {
  Sql("INSERT INTO penstock_version VALUES (9)");
  EXPECT_THAT(PostgresEventStore::Open(url_, {}),
              Fails(StatusCode::kFailedPrecondition, "has version 9, of a newer"));
}

TEST_F(PostgresStoreTest, MigrationsBringANewDatabaseAndAnOldOneToTheSameVersion) {
  constexpr char kFirst[] = "CREATE TABLE names AS SELECT 'first last' AS name";
  constexpr char kSecond[] =
      "DO $$ BEGIN CREATE TABLE people AS SELECT split_part(name, ' ', 2) AS last FROM names; DROP TABLE "
      "names; END $$";
  constexpr char kWrong[] = "DO $$ BEGIN CREATE TABLE half (x int); INSERT INTO nowhere VALUES (1); END $$";
  const Deadline deadline = Deadline::After(absl::Seconds(20));
  const std::string old_name = server_->NewDatabase(), new_name = server_->NewDatabase();
  PostgresConnection old_one(server_->Url(old_name), absl::Seconds(5));
  PostgresConnection new_one(server_->Url(new_name), absl::Seconds(5));
  ASSERT_THAT(MigratePostgres(&old_one, {kFirst}, deadline), IsOk());
  EXPECT_THAT(MigratePostgres(&old_one, {kFirst, kWrong}, deadline),
              Fails(StatusCode::kFailedPrecondition, "nowhere"));
  EXPECT_EQ(server_->Sql(old_name, "SELECT max(version), to_regclass('half') FROM penstock_version"), "1|");
  for (PostgresConnection* connection : {&old_one, &new_one}) {
    ASSERT_THAT(MigratePostgres(connection, {kFirst, kSecond}, deadline), IsOk());
    EXPECT_THAT(MigratePostgres(connection, {kFirst, kSecond}, deadline), IsOk());
    EXPECT_THAT(MigratePostgres(connection, {kFirst}, deadline),
                Fails(StatusCode::kFailedPrecondition, "version 2"));
  }
  EXPECT_EQ(server_->Sql(old_name, "SELECT last FROM people"), "last");
  EXPECT_EQ(server_->Sql(new_name, "SELECT last FROM people"), "last");
}

TEST_F(PostgresStoreTest, SeveralPlannersMayMakeTheTablesAtATime) {
  const std::string url = server_->Url(server_->NewDatabase());
  std::vector<std::thread> planners;
  for (int i = 0; i < 4; ++i)
    planners.emplace_back([&] { EXPECT_THAT(PostgresEventStore::Open(url, {}), IsOk()); });
  for (std::thread& planner : planners) planner.join();
}

TEST_F(PostgresStoreTest, TwoWritersOfOneTermAreNoticed) {
  ASSERT_THAT(Commit({Append(1, 1, 1)}), IsOk());
  const auto other = Open(url_);
  ASSERT_THAT(other->Commit({Append(1, 2, 1)}), IsOk());
  EXPECT_THAT(Commit({Append(1, 2, 1)}), Fails(StatusCode::kAborted, "somebody else writes"));
}

}  // namespace
}  // namespace penstock
