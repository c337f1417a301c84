// URLs of stores, right and wrong.
#include "planner/service/store/open/open_event_store.h"

#include <gtest/gtest.h>

#include "tests/integration/store/changes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using absl::StatusCode;

TEST(OpenEventStoreTest, OpensMemoryAndFiles) {
  const TemporaryFolder folder;
  for (const std::string& url : {std::string("memory"), "sqlite:" + folder.Path("planner.db")}) {
    const auto store = OpenEventStore(url, {});
    ASSERT_THAT(store, IsOk());
    EXPECT_THAT((*store)->Commit({Append(1, 1, 1)}), IsOk());
    const auto lease = OpenLease(url, {});
    ASSERT_THAT(lease, IsOk());
    EXPECT_EQ(*(*lease)->Acquire("me"), 1);
    EXPECT_THAT((*lease)->Renew(), IsOk());
  }
}

TEST(OpenEventStoreTest, WrongUrlsNameTheFlagAndSayWhatIsRight) {
  for (const std::string url :
       {"", "sqlite", "sqlite:", "Memory", "memory:", "mysql://host/db", "/var/lib/planner.db"}) {
    EXPECT_THAT(OpenEventStore(url, {.flag = "--keep"}), Fails(StatusCode::kInvalidArgument, "--keep: "));
    EXPECT_THAT(OpenLease(url, {.flag = "--keep"}),
                Fails(StatusCode::kInvalidArgument, "use memory, sqlite:PATH or postgres://USER@HOST/NAME"));
  }
}

TEST(OpenEventStoreTest, AWrongPostgresUrlIsRefusedBeforeItIsTried) {
  for (const std::string url : {"postgresql://host/db?colour=red", "postgres://[::1/db"}) {
    EXPECT_THAT(CheckStoreUrl(url, "--store"), Fails(StatusCode::kInvalidArgument, "--store: ")) << url;
  }
  EXPECT_THAT(CheckStoreUrl("postgresql://me@host:5432/db?sslmode=require", "--store"), IsOk());
}

TEST(OpenEventStoreTest, ErrorsOfAStoreNameTheFlag) {
  EXPECT_THAT(OpenEventStore("sqlite:/nowhere/planner.db", {}),
              Fails(StatusCode::kFailedPrecondition, "--store: store '/nowhere/planner.db'"));
}

}  // namespace
}  // namespace penstock
