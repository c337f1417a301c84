#include "worker/comm/guarded_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/support/status_matchers.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::milliseconds kSoon{50};

// What the workers see, and what a stranger does who reaches the same store.
class GuardedStoreTest : public ::testing::Test {
 protected:
  static c10::intrusive_ptr<c10d::Store> Guard(const c10::intrusive_ptr<c10d::Store>& store, char secret,
                                               const std::string& purpose = "epoch 1") {
    return GuardStore(store, SealedValues(std::string(32, secret), purpose));
  }

  absl::StatusOr<std::string> Get(c10d::Store& store, const std::string& key) {
    return CallTorch("get", [&] { return store.get_to_str(key); });
  }

  const c10::intrusive_ptr<c10d::Store> shared_ = c10::make_intrusive<c10d::HashStore>();
  const c10::intrusive_ptr<c10d::Store> workers_ = Guard(shared_, 's');
};

auto SaysForged() { return Fails(absl::StatusCode::kUnavailable, "was not made by a worker of this epoch"); }

TEST_F(GuardedStoreTest, AWorkerReadsWhatAnotherHasWritten) {
  workers_->set("address", std::string("10.0.0.1:4711"));
  const auto other = Guard(shared_, 's');
  other->wait({"address"}, kSoon);
  EXPECT_TRUE(other->check({"address"}));
  EXPECT_EQ(*Get(*other, "address"), "10.0.0.1:4711");
  EXPECT_EQ(*Get(*other->clone(), "address"), "10.0.0.1:4711");
}

TEST_F(GuardedStoreTest, WhoReadsTheStoreSeesNeitherKeysNorValues) {
  workers_->set("address", std::string("10.0.0.1:4711"));
  EXPECT_FALSE(shared_->check({"address"}));
  const std::vector<std::string> keys = shared_->listKeys();
  ASSERT_EQ(keys.size(), 1);
  EXPECT_THAT(keys.front(), Not(HasSubstr("address")));
  EXPECT_THAT(*Get(*shared_, keys.front()), Not(HasSubstr("4711")));
}

TEST_F(GuardedStoreTest, AKeyOfAStrangerIsNotThere) {
  shared_->set("address", std::string("6.6.6.6:666"));
  EXPECT_FALSE(workers_->check({"address"}));
  EXPECT_FALSE(RunTorch("wait", [&] { workers_->wait({"address"}, kSoon); }).ok());
}

TEST_F(GuardedStoreTest, AValueThatAStrangerHasReplacedIsRefusedByName) {
  workers_->set("address", std::string("10.0.0.1:4711"));
  shared_->set(shared_->listKeys().front(), std::string("6.6.6.6:666"));
  EXPECT_THAT(Get(*workers_, "address"), SaysForged());
  EXPECT_THAT(Get(*workers_, "address"), Fails(absl::StatusCode::kUnavailable, "'address'"));
  shared_->set(shared_->listKeys().front(), std::string());
  EXPECT_THAT(Get(*workers_, "address"), SaysForged());
}

TEST_F(GuardedStoreTest, ValuesThatAStrangerHasExchangedAreRefused) {
  workers_->set("rank 0", std::string("10.0.0.1:4711"));
  workers_->set("rank 1", std::string("10.0.0.2:4711"));
  const std::vector<std::string> keys = shared_->listKeys();
  ASSERT_EQ(keys.size(), 2);
  const std::string first = shared_->get_to_str(keys[0]);
  shared_->set(keys[0], shared_->get_to_str(keys[1]));
  shared_->set(keys[1], first);
  EXPECT_THAT(Get(*workers_, "rank 0"), SaysForged());
  EXPECT_THAT(Get(*workers_, "rank 1"), SaysForged());
}

TEST_F(GuardedStoreTest, WorkersOfAnotherEpochOrSecretAreStrangers) {
  Guard(shared_, 's', "epoch 2")->set("address", std::string("10.0.0.1:4711"));
  Guard(shared_, 't')->set("address", std::string("10.0.0.1:4711"));
  EXPECT_FALSE(workers_->check({"address"}));
}

TEST_F(GuardedStoreTest, ADeletedKeyIsGone) {
  workers_->set("address", std::string("10.0.0.1:4711"));
  EXPECT_TRUE(workers_->deleteKey("address"));
  EXPECT_FALSE(workers_->check({"address"}));
}

TEST_F(GuardedStoreTest, SumsAreUnderHiddenKeys) {
  EXPECT_EQ(workers_->add("count", 1), 1);
  EXPECT_EQ(Guard(shared_, 's')->add("count", 2), 3);
  EXPECT_FALSE(shared_->check({"count"}));
}

TEST_F(GuardedStoreTest, WhatCannotBeSealedIsRefused) {
  EXPECT_FALSE(RunTorch("append", [&] { workers_->append("list", {1}); }).ok());
  EXPECT_FALSE(workers_->hasExtendedApi());
  EXPECT_THAT(shared_->listKeys(), ElementsAre());
}

}  // namespace
}  // namespace penstock::worker
