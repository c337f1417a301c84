#include "worker/rendezvous/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TableTest : public ::testing::Test {
 protected:
  // Whom it answers.
  std::vector<Table::Caller> Ask(Table::Caller caller, const TableRequest& request) {
    due_ = table_.Apply(caller, request, now_);
    std::vector<Table::Caller> callers;
    for (const Table::Due& due : due_) callers.push_back(due.caller);
    return callers;
  }

  TableAnswer Answer(const TableRequest& request) {
    EXPECT_THAT(Ask(1, request), ElementsAre(1));
    return due_.empty() ? TableAnswer() : due_.front().answer;
  }

  std::vector<Table::Caller> Set(Table::Caller caller, const std::string& key,
                                 const std::string& value = "v") {
    return Ask(caller, {.operation = TableOperation::kSet, .keys = {key}, .value = value});
  }

  std::vector<Table::Caller> Wait(Table::Caller caller, const std::vector<std::string>& keys,
                                  absl::Duration time = absl::Seconds(10)) {
    return Ask(caller,
               {.operation = TableOperation::kWait, .keys = keys, .number = absl::ToInt64Milliseconds(time)});
  }

  Table table_;
  absl::Time now_ = absl::UnixEpoch();
  std::vector<Table::Due> due_;
};

TEST_F(TableTest, AValueIsWhatWasSetLast) {
  EXPECT_FALSE(Answer({.operation = TableOperation::kGet, .keys = {"a"}}).found);
  Set(2, "a", "one");
  Set(3, "a", "two");
  EXPECT_EQ(Answer({.operation = TableOperation::kGet, .keys = {"a"}}).value, "two");
  EXPECT_EQ(Answer({.operation = TableOperation::kCount}).number, 1);
  EXPECT_TRUE(Answer({.operation = TableOperation::kDelete, .keys = {"a"}}).found);
  EXPECT_FALSE(Answer({.operation = TableOperation::kDelete, .keys = {"a"}}).found);
}

TEST_F(TableTest, AddsToWhatIsThereAndToNothing) {
  EXPECT_EQ(Answer({.operation = TableOperation::kAdd, .keys = {"n"}, .number = 3}).number, 3);
  EXPECT_EQ(Answer({.operation = TableOperation::kAdd, .keys = {"n"}, .number = -5}).number, -2);
  Set(1, "word", "no number");
  EXPECT_FALSE(Answer({.operation = TableOperation::kAdd, .keys = {"word"}, .number = 1}).found);
}

TEST_F(TableTest, TellsThoseWhoWaitWhenTheLastOfTheirKeysIsThere) {
  EXPECT_THAT(Wait(1, {"a", "b"}), IsEmpty());
  EXPECT_THAT(Wait(2, {"b"}), IsEmpty());
  EXPECT_THAT(Set(3, "a"), ElementsAre(3));
  EXPECT_THAT(Set(3, "b"), ElementsAre(3, 1, 2));
  EXPECT_TRUE(due_[1].answer.found);
  EXPECT_THAT(Wait(4, {"b", "a"}), ElementsAre(4));
  EXPECT_EQ(table_.next_expiry(), absl::InfiniteFuture());
}

TEST_F(TableTest, TellsThoseWhoHaveWaitedForLongEnough) {
  Wait(1, {"never"}, absl::Seconds(2));
  Wait(2, {"never"}, absl::Seconds(1));
  EXPECT_EQ(table_.next_expiry(), now_ + absl::Seconds(1));
  EXPECT_THAT(table_.Expire(now_), IsEmpty());
  const std::vector<Table::Due> due = table_.Expire(now_ + absl::Seconds(1));
  ASSERT_EQ(due.size(), 1);
  EXPECT_EQ(due.front().caller, 2);
  EXPECT_FALSE(due.front().answer.found);
}

TEST_F(TableTest, WhoIsGoneIsToldNothing) {
  Wait(1, {"a"});
  table_.Forget(1);
  EXPECT_THAT(Set(2, "a"), ElementsAre(2));
}

TEST_F(TableTest, ChecksAllKeys) {
  Set(1, "a");
  EXPECT_TRUE(Answer({.operation = TableOperation::kCheck, .keys = {"a"}}).found);
  EXPECT_FALSE(Answer({.operation = TableOperation::kCheck, .keys = {"a", "b"}}).found);
}

}  // namespace
}  // namespace penstock::worker
