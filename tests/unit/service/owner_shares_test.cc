#include "planner/service/engine/owner_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace penstock {
namespace {

struct Tasks {
  bool none = false;
  bool empty() const { return none; }
};

struct Owner {
  Tasks tasks;
  uint64_t turn = 0;
  // Of its tasks, in turn.
  std::vector<absl::Duration> takes;
  size_t begun = 0;
  absl::Duration given;
  // Time between its tasks; zero: it always has one waiting.
  absl::Duration pause;
  absl::Time comes = absl::UnixEpoch();
};

// Threads that compute for owners, and time that passes from the end of one task to that of the next.
class Threads {
 public:
  // One more is for short tasks alone.
  explicit Threads(size_t threads) : threads_(threads) {}

  void Add(const std::string& name, std::vector<absl::Duration> takes,
           absl::Duration pause = absl::ZeroDuration()) {
    owners_[name].takes = std::move(takes);
    owners_[name].pause = pause;
  }

  void RunFor(absl::Duration time) {
    const absl::Time end = now_ + time;
    while (now_ < end) {
      while (BeginOne()) {
      }
      now_ = NextTime();
      EndDue();
    }
  }

  absl::Duration GivenTo(const std::string& name) const { return owners_.at(name).given; }

 private:
  struct Running {
    std::string owner;
    absl::Time ends;
    absl::Duration takes;
    uint64_t number;
  };

  bool BeginOne() {
    if (running_.size() > threads_) return false;
    shares_.SetTime(now_);
    for (auto& [name, owner] : owners_) owner.tasks.none = owner.comes > now_;
    const auto next = shares_.Next(owners_.begin(), owners_.end(), running_.size() == threads_);
    if (next == owners_.end()) return false;
    Owner& owner = next->second;
    const uint64_t number = shares_.Begin(next->first, owners_.begin(), owners_.end());
    owner.turn = ++turns_;
    const absl::Duration takes = owner.takes[owner.begun++ % owner.takes.size()];
    running_.push_back({next->first, now_ + takes, takes, number});
    if (owner.pause == absl::ZeroDuration()) return true;
    owner.comes = now_ + takes + owner.pause;
    return true;
  }

  absl::Time NextTime() const {
    absl::Time next = absl::InfiniteFuture();
    for (const Running& one : running_) next = std::min(next, one.ends);
    for (const auto& [name, owner] : owners_)
      if (owner.comes > now_) next = std::min(next, owner.comes);
    return next;
  }

  void EndDue() {
    shares_.SetTime(now_);
    std::erase_if(running_, [&](const Running& one) {
      if (one.ends > now_) return false;
      owners_[one.owner].given += one.takes;
      shares_.End(one.number);
      return true;
    });
  }

  const size_t threads_;
  OwnerShares shares_;
  std::map<std::string, Owner> owners_;
  std::vector<Running> running_;
  uint64_t turns_ = 0;
  absl::Time now_ = absl::UnixEpoch();
};

class OwnerSharesTest : public testing::TestWithParam<size_t> {};

TEST_P(OwnerSharesTest, OwnersThatAlwaysHaveATaskGetTheSameTimeHoweverLongTheirTasksTake) {
  Threads threads(GetParam());
  const std::map<std::string, std::vector<absl::Duration>> takes = {
      {"a", {absl::Milliseconds(8)}},
      {"b", {absl::Milliseconds(70)}},
      {"c", {absl::Milliseconds(490)}},
      {"d", {absl::Milliseconds(900)}},
      {"e", {absl::Seconds(2)}},
      {"two jobs", {absl::Milliseconds(30), absl::Seconds(5)}},
      {"mostly short",
       {absl::Milliseconds(30), absl::Milliseconds(20), absl::Milliseconds(10), absl::Seconds(1)}}};
  for (const auto& [name, one] : takes) threads.Add(name, one);
  threads.RunFor(absl::Seconds(400));
  absl::Duration all;
  for (const auto& [name, one] : takes) all += threads.GivenTo(name);
  for (const auto& [name, one] : takes)
    EXPECT_NEAR(absl::FDivDuration(threads.GivenTo(name), all / takes.size()), 1, 0.1) << name;
}

TEST_P(OwnerSharesTest, WhoHasLittleToPlanWaitsForNoLongTaskOfOthers) {
  Threads threads(GetParam());
  for (const char* name : {"a", "b", "c", "d"}) threads.Add(name, {absl::Seconds(2)});
  threads.Add("little", {absl::Milliseconds(5)}, /*pause=*/absl::Milliseconds(50));
  // Until it is known to be short.
  threads.RunFor(absl::Seconds(20));
  const absl::Duration before = threads.GivenTo("little");
  threads.RunFor(absl::Seconds(200));
  EXPECT_GT(threads.GivenTo("little") - before, absl::Seconds(200.0 * 5 / 55 * 0.99));
}

INSTANTIATE_TEST_SUITE_P(Threads, OwnerSharesTest, testing::Values(1, 2, 3, 6));

}  // namespace
}  // namespace penstock
