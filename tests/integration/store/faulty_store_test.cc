// The store with faults that tests of the engine use: a commit that fails may be repeated, whatever became of
// it.
#include "tests/support/faulty_store.h"

#include <gtest/gtest.h>

#include "planner/service/store/memory_event_store.h"
#include "tests/integration/store/changes.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::IsEmpty;

class FaultyStoreTest : public testing::Test {
 protected:
  absl::Status Commit(std::vector<JobChange> changes) { return store_.Commit(changes); }

  MemoryEventStore memory_;
  FaultyStore store_{&memory_};
};

TEST_F(FaultyStoreTest, ACommitThatFailsBeforeItTookEffectIsDoneWhenItIsRepeated) {
  store_.FailCommit(2, FaultyStore::Effect::kNone);
  ASSERT_THAT(Commit({Append(1, 1, 1)}), IsOk());
  EXPECT_THAT(Commit({Append(1, 2, 1)}), Fails(StatusCode::kUnavailable, "FaultyStore"));
  EXPECT_THAT(*memory_.Load(), ElementsAre(HasEvents(1, 1, 1)));
  EXPECT_THAT(Commit({Append(1, 2, 1)}), IsOk());
  EXPECT_THAT(*memory_.Load(), ElementsAre(HasEvents(1, 1, 2)));
  EXPECT_EQ(store_.commits(), 2);
}

TEST_F(FaultyStoreTest, ACommitThatFailsAfterItTookEffectIsNotDoneTwice) {
  store_.FailCommit(1, FaultyStore::Effect::kDone);
  EXPECT_THAT(Commit({Append(1, 1, 1)}), Fails(StatusCode::kUnavailable, "FaultyStore"));
  EXPECT_THAT(*memory_.Load(), ElementsAre(HasEvents(1, 1, 1)));
  EXPECT_THAT(Commit({Append(1, 1, 1), Append(1, 2, 1)}), IsOk());
  EXPECT_THAT(*memory_.Load(), ElementsAre(HasEvents(1, 1, 2)));
}

TEST_F(FaultyStoreTest, OtherChangesAfterACommitThatTookEffectAreRefused) {
  store_.FailCommit(1, FaultyStore::Effect::kDone);
  EXPECT_FALSE(Commit({Append(1, 1, 1)}).ok());
  EXPECT_THAT(Commit({Append(2, 1, 1)}), Fails(StatusCode::kAborted, "must be committed again"));
}

TEST_F(FaultyStoreTest, ABrokenStoreFailsUntilItIsMended) {
  store_.Break(absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(Commit({Append(1, 1, 1)}), Fails(StatusCode::kResourceExhausted, "disk full"));
  EXPECT_THAT(store_.Check(), Fails(StatusCode::kResourceExhausted, "disk full"));
  EXPECT_THAT(store_.Load(), Fails(StatusCode::kResourceExhausted, "disk full"));
  EXPECT_THAT(*memory_.Load(), IsEmpty());
  store_.Mend();
  EXPECT_THAT(Commit({Append(1, 1, 1)}), IsOk());
}

}  // namespace
}  // namespace penstock
