// SQLite files as an operator meets them: in use, of another program or version, moved away, damaged.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "planner/service/store/sqlite/sqlite_event_store.h"
#include "planner/service/store/sqlite/sqlite_schema.h"
#include "tests/integration/store/changes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SqliteStoreTest : public testing::Test {
 protected:
  std::unique_ptr<SqliteEventStore> Open() {
    auto store = SqliteEventStore::Open(path_);
    EXPECT_THAT(store, IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

  static absl::Status Commit(EventStore* store, std::vector<JobChange> changes) {
    return store->Commit(changes);
  }

  // A file with some jobs, closed.
  void WriteSomeJobs() {
    const auto store = Open();
    for (uint64_t job = 1; job <= 20; ++job) {
      ASSERT_THAT(Commit(store.get(), {Append(job, 1, 60), AddBatch(job, 0, std::string(3000, 'b'))}),
                  IsOk());
      if (job % 3 != 0) continue;
      ASSERT_THAT(Commit(store.get(), {AddSnapshot(job, 30, std::string(9000, 's'))}), IsOk());
    }
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.Path("planner.db");
};

// Runs SQL on a file as another program would.
void RunSql(const std::string& path, const std::string& sql) {
  const auto database = SqliteDatabase::Open(path);
  ASSERT_THAT(database, IsOk());
  ASSERT_THAT((*database)->Execute(sql), IsOk());
}

TEST_F(SqliteStoreTest, ACopyHasAllThatIsCommittedWhileItIsMade) {
  WriteSomeJobs();
  const auto store = Open();
  ASSERT_THAT(Commit(store.get(), {AddBatch(1, 7, std::string(6 << 20, 'b'))}), IsOk());
  auto copy = store->BeginCopy();
  ASSERT_THAT(copy, IsOk());
  EXPECT_THAT(store->BeginCopy(), Fails(StatusCode::kResourceExhausted, "another backup"));
  int steps = 0;
  for (bool whole = false; !whole; ++steps) {
    const auto step = (*copy)->Step();
    ASSERT_THAT(step, IsOk());
    whole = *step;
    if (whole) continue;
    ASSERT_THAT(Commit(store.get(), {Append(1, 61 + static_cast<uint64_t>(steps), 1)}), IsOk());
  }
  EXPECT_GT(steps, 5);
  EXPECT_EQ((*copy)->copied_bytes(), (*copy)->total_bytes());
  {
    const auto copied = SqliteEventStore::Open((*copy)->path());
    ASSERT_THAT(copied, IsOk());
    const auto jobs = (*copied)->Load();
    ASSERT_THAT(jobs, IsOk());
    ASSERT_EQ(jobs->size(), 20);
    EXPECT_THAT(jobs->front(), HasEvents(1, 1, 60 + steps - 1));
    EXPECT_EQ((*copied)->GetBatch(1, 7)->size(), 6 << 20);
  }
  const std::string path = (*copy)->path();
  copy->reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(store->BeginCopy(), IsOk());
}

TEST_F(SqliteStoreTest, TwoPlannersCannotHaveOneFile) {
  const auto store = Open();
  EXPECT_THAT(SqliteEventStore::Open(path_), Fails(StatusCode::kUnavailable, "another process has it"));
  EXPECT_THAT(SqliteEventStore::Open(path_), Fails(StatusCode::kUnavailable, path_));
  EXPECT_THAT(Commit(store.get(), {Append(1, 1, 1)}), IsOk());
}

TEST_F(SqliteStoreTest, AFileThatWasClosedCanBeOpenedByAnother) {
  Open();
  EXPECT_THAT(Commit(Open().get(), {Append(1, 1, 1)}), IsOk());
}

TEST_F(SqliteStoreTest, LeavesOneFileWhenItIsClosed) {
  WriteSomeJobs();
  const std::filesystem::directory_iterator files(folder_.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

// What is in it: the secrets of epochs.
TEST_F(SqliteStoreTest, NobodyButItsOwnerReadsTheFile) {
  using std::filesystem::perms;
  const auto modes = [&] {
    std::vector<perms> found;
    for (const auto& file : std::filesystem::directory_iterator(folder_.path()))
      found.push_back(file.status().permissions());
    return found;
  };
  constexpr perms kOwnersAlone = perms::owner_read | perms::owner_write;
  auto store = Open();
  ASSERT_THAT(Commit(store.get(), {Append(1, 1, 1)}), IsOk());
  EXPECT_THAT(modes(), testing::AllOf(testing::SizeIs(testing::Ge(2)), testing::Each(kOwnersAlone)));
  store.reset();
  // As planners made it that kept no secrets.
  std::filesystem::permissions(path_, kOwnersAlone | perms::group_read | perms::others_read);
  store = Open();
  ASSERT_THAT(Commit(store.get(), {Append(1, 2, 1)}), IsOk());
  EXPECT_THAT(modes(), testing::AllOf(testing::SizeIs(testing::Ge(2)), testing::Each(kOwnersAlone)));
}

TEST_F(SqliteStoreTest, KeepsAWriteAheadLog) {
  Open();
  const auto database = SqliteDatabase::Open(path_);
  EXPECT_EQ(*(*database)->Text("PRAGMA journal_mode"), "wal");
}

// Counts how often SQLite flushes write-ahead logs that are opened while it exists.
class FlushCounter {
 public:
  FlushCounter() {
    vfs_ = *sqlite3_vfs_find(nullptr);
    open_ = vfs_.xOpen;
    vfs_.zName = "flush-counter";
    vfs_.xOpen = [](sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out) {
      const int code = open_(vfs, name, file, flags, out);
      // Logs have functions of their own, which are the same for all of them.
      if (code != SQLITE_OK || (flags & SQLITE_OPEN_WAL) == 0) return code;
      sync_ = file->pMethods->xSync;
      methods_ = *file->pMethods;
      methods_.xSync = [](sqlite3_file* opened, int how) {
        ++flushes_;
        return sync_(opened, how);
      };
      file->pMethods = &methods_;
      return code;
    };
    flushes_ = 0;
    sqlite3_vfs_register(&vfs_, /*makeDflt=*/1);
  }
  ~FlushCounter() { sqlite3_vfs_unregister(&vfs_); }
  FlushCounter(const FlushCounter&) = delete;
  FlushCounter& operator=(const FlushCounter&) = delete;

  int flushes() const { return flushes_; }

 private:
  static inline sqlite3_vfs vfs_;
  static inline sqlite3_io_methods methods_;
  static inline decltype(sqlite3_vfs::xOpen) open_;
  static inline decltype(sqlite3_io_methods::xSync) sync_;
  static inline int flushes_ = 0;
};

TEST_F(SqliteStoreTest, ACommitIsFlushedToTheDiskBeforeItIsAnswered) {
  const FlushCounter counter;
  const auto store = Open();
  for (int i = 0; i < 10; ++i) {
    const int before = counter.flushes();
    ASSERT_THAT(Commit(store.get(), {Append(1, 1 + i, 1)}), IsOk());
    EXPECT_GT(counter.flushes(), before);
  }
}

TEST_F(SqliteStoreTest, AnEmptyFileBecomesAStore) {
  folder_.Write("planner.db", "");
  EXPECT_THAT(*Open()->Load(), IsEmpty());
}

TEST_F(SqliteStoreTest, NamesThatSqliteGivesAMeaningArePaths) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  for (const std::string name : {":memory:", "file:planner.db?mode=memory"}) {
    const auto store = SqliteEventStore::Open(name);
    EXPECT_THAT(store, IsOk());
    EXPECT_TRUE(std::filesystem::exists(folder_.Path(name)));
  }
  std::filesystem::current_path(before);
  EXPECT_THAT(SqliteEventStore::Open(""), Fails(StatusCode::kInvalidArgument, "empty"));
}

TEST_F(SqliteStoreTest, AFileOfAnotherProgramIsRefusedAndLeftAsItIs) {
  RunSql(path_, "CREATE TABLE recipes (name TEXT)");
  const std::string before = folder_.Read("planner.db");
  EXPECT_THAT(SqliteEventStore::Open(path_), Fails(StatusCode::kFailedPrecondition, "another program"));
  EXPECT_EQ(folder_.Read("planner.db"), before);
}

TEST_F(SqliteStoreTest, AFileOfANewerVersionIsRefusedAndLeftAsItIs) {
  WriteSomeJobs();
  RunSql(path_, "PRAGMA user_version = 9");
  const std::string before = folder_.Read("planner.db");
  EXPECT_THAT(SqliteEventStore::Open(path_),
              Fails(StatusCode::kFailedPrecondition, "has version 9, of a newer planner"));
  EXPECT_EQ(folder_.Read("planner.db"), before);
}

TEST_F(SqliteStoreTest, AFileThatIsNoDatabaseIsDamaged) {
  folder_.Write("planner.db", std::string(10'000, 'x'));
  EXPECT_THAT(SqliteEventStore::Open(path_), Fails(StatusCode::kDataLoss, "put a copy of it in its place"));
}

TEST_F(SqliteStoreTest, APathThatCannotBeAFileIsRefused) {
  EXPECT_THAT(SqliteEventStore::Open(folder_.path()),
              Fails(StatusCode::kFailedPrecondition, "must name a file"));
  EXPECT_THAT(SqliteEventStore::Open(folder_.Path("missing/planner.db")),
              Fails(StatusCode::kFailedPrecondition, "folder must exist"));
  folder_.Write("file", "");
  EXPECT_THAT(SqliteEventStore::Open(folder_.Path("file/planner.db")),
              Fails(StatusCode::kFailedPrecondition, "folder must exist"));
}

TEST_F(SqliteStoreTest, AFileThatIsMovedAwayWhileItIsOpenTakesNoCommit) {
  const auto store = Open();
  ASSERT_THAT(Commit(store.get(), {Append(1, 1, 1)}), IsOk());
  std::filesystem::rename(path_, folder_.Path("moved"));
  EXPECT_THAT(Commit(store.get(), {Append(1, 2, 1)}),
              Fails(StatusCode::kFailedPrecondition, "moved or deleted"));
  EXPECT_THAT(store->Check(), Fails(StatusCode::kFailedPrecondition, path_));
  std::filesystem::rename(folder_.Path("moved"), path_);
  EXPECT_THAT(store->Check(), IsOk());
  EXPECT_THAT(Commit(store.get(), {Append(1, 2, 1)}), IsOk());
}

// --- Damage ---

TEST_F(SqliteStoreTest, AFileThatIsCutOffIsDamaged) {
  WriteSomeJobs();
  const auto size = std::filesystem::file_size(path_);
  for (const uintmax_t left : {size - 4096, size / 2, uintmax_t{4096}, uintmax_t{1000}}) {
    std::filesystem::resize_file(path_, left);
    EXPECT_THAT(SqliteEventStore::Open(path_), Fails(StatusCode::kDataLoss, path_)) << left << " bytes left";
  }
}

TEST_F(SqliteStoreTest, ABatchWithAChangedByteIsDamaged) {
  WriteSomeJobs();
  std::string bytes = folder_.Read("planner.db");
  const size_t batch = bytes.find(std::string(500, 'b'));
  ASSERT_NE(batch, std::string::npos);
  bytes[batch + 100] ^= 1;
  folder_.Write("planner.db", bytes);
  const auto store = Open();
  int damaged = 0;
  for (uint64_t job = 1; job <= 20; ++job) {
    const auto found = store->GetBatch(job, 0);
    if (found.ok()) continue;
    ++damaged;
    EXPECT_THAT(found, Fails(StatusCode::kDataLoss, absl::StrCat("the batch 0 of job ", job)));
    EXPECT_THAT(found, Fails(StatusCode::kDataLoss, path_));
  }
  EXPECT_EQ(damaged, 1);
}

TEST_F(SqliteStoreTest, EventsThatAreGoneAreMissed) {
  WriteSomeJobs();
  RunSql(path_, "DELETE FROM events WHERE job = 7 AND sequence = 60");
  EXPECT_THAT(Open()->Load(), Fails(StatusCode::kDataLoss, "events of job 7 are missing"));
  RunSql(path_, "DELETE FROM events WHERE job = 7 AND sequence = 10");
  EXPECT_THAT(Open()->Load(), Fails(StatusCode::kDataLoss, "the event 11 of job 7 is not where it belongs"));
}

// Whether a file that was damaged gives an error, or all that was stored. `seed` says where the damage is.
class DamagedFile : public SqliteStoreTest, public testing::WithParamInterface<int> {};

TEST_P(DamagedFile, IsNeverTakenForAWholeOne) {
  WriteSomeJobs();
  const std::string whole = folder_.Read("planner.db");
  const auto expected = *Open()->Load();
  std::mt19937_64 random(static_cast<uint64_t>(GetParam()));
  for (int round = 0; round < 40; ++round) {
    std::string damaged = whole;
    const size_t length = std::uniform_int_distribution<size_t>(1, 64)(random);
    const size_t start = std::uniform_int_distribution<size_t>(0, damaged.size() - length)(random);
    for (size_t i = start; i < start + length; ++i) damaged[i] = static_cast<char>(random());
    folder_.Write("planner.db", damaged);
    std::filesystem::remove(path_ + "-wal");
    SCOPED_TRACE(absl::StrCat("round ", round, ": ", length, " bytes at ", start));
    const auto store = SqliteEventStore::Open(path_);
    if (!store.ok()) {
      EXPECT_THAT(store,
                  AnyOf(Fails(StatusCode::kDataLoss, path_), Fails(StatusCode::kFailedPrecondition, path_)));
      continue;
    }
    const auto jobs = (*store)->Load();
    if (!jobs.ok()) {
      EXPECT_THAT(jobs, Fails(StatusCode::kDataLoss, path_));
      continue;
    }
    ASSERT_EQ(jobs->size(), expected.size());
    for (size_t i = 0; i < jobs->size(); ++i) {
      EXPECT_EQ((*jobs)[i].events, expected[i].events);
      EXPECT_EQ((*jobs)[i].first_sequence, expected[i].first_sequence);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, DamagedFile, testing::Range(1, 4));

// --- Versions ---

// The first version of a made-up schema, and what became of it.
constexpr char kFirst[] = "CREATE TABLE names (name TEXT); INSERT INTO names VALUES ('first last')";
constexpr char kSecond[] =
    "CREATE TABLE people (first TEXT, last TEXT);"
    "INSERT INTO people SELECT substr(name, 1, 5), substr(name, 7) FROM names; DROP TABLE names";
constexpr char kWrong[] = "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)";

absl::Status Migrate(SqliteDatabase* database, std::vector<const char*> migrations) {
  absl::Status status = CheckSqliteVersion(database, migrations);
  return status.ok() ? MigrateSqlite(database, migrations) : status;
}

TEST_F(SqliteStoreTest, MigrationsBringANewFileAndAnOldOneToTheSameVersion) {
  const auto old_file = SqliteDatabase::Open(path_);
  ASSERT_THAT(Migrate(old_file->get(), {kFirst}), IsOk());
  EXPECT_EQ(*(*old_file)->Number("PRAGMA user_version"), 1);
  const auto new_file = SqliteDatabase::Open(folder_.Path("new.db"));
  for (SqliteDatabase* file : {old_file->get(), new_file->get()}) {
    ASSERT_THAT(Migrate(file, {kFirst, kSecond}), IsOk());
    EXPECT_EQ(*file->Number("PRAGMA user_version"), 2);
    EXPECT_EQ(*file->Text("SELECT last FROM people"), "last");
    EXPECT_THAT(Migrate(file, {kFirst, kSecond}), IsOk());
    EXPECT_THAT(Migrate(file, {kFirst}), Fails(StatusCode::kFailedPrecondition, "has version 2"));
  }
}

TEST_F(SqliteStoreTest, AMigrationThatFailsLeavesTheVersionBefore) {
  const auto file = SqliteDatabase::Open(path_);
  ASSERT_THAT(Migrate(file->get(), {kFirst}), IsOk());
  EXPECT_THAT(Migrate(file->get(), {kFirst, kWrong}), Fails(StatusCode::kInternal, "nowhere"));
  EXPECT_EQ(*(*file)->Number("PRAGMA user_version"), 1);
  EXPECT_EQ(*(*file)->Number("SELECT count(*) FROM sqlite_schema WHERE name = 'half'"), 0);
  EXPECT_THAT(Migrate(file->get(), {kFirst, kSecond}), IsOk());
}

// A store as version 1 wrote it: whatever comes later must read it.
TEST_F(SqliteStoreTest, ReadsAStoreOfVersion1) {
  RunSql(path_, TemporaryFolder().Read(PENSTOCK_STORE_FIXTURES "/version_1.sql"));
  const auto store = Open();
  const auto jobs = *store->Load();
  ASSERT_EQ(jobs.size(), 2);
  EXPECT_THAT(jobs[0], HasEvents(1, 1, 3));
  EXPECT_EQ(jobs[1].snapshot->bytes, "at 2");
  EXPECT_EQ(jobs[1].events, MakeEvents(2, 3, 2));
  EXPECT_EQ(*store->GetBatch(2, 5), "batch 5");
  EXPECT_EQ(*store->LargestJob(), 3);
}

}  // namespace
}  // namespace penstock
