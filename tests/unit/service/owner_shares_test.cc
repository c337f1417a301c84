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

// Threads that compute for owners on cores that they share evenly, and time that passes from the end of one
// task to that of the next.
class Threads {
 public:
  // One more thread is for short tasks alone.
  Threads(size_t threads, size_t cores) : threads_(threads), cores_(cores) {}

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
      PassTo(NextTime());
    }
  }

  absl::Duration GivenTo(const std::string& name) const { return owners_.at(name).given; }

 private:
  struct Running {
    std::string owner;
    absl::Duration computed;
    absl::Duration takes;
    uint64_t number;
  };

  bool BeginOne() {
    if (running_.size() > threads_) return false;
    for (auto& [name, owner] : owners_) owner.tasks.none = owner.comes > now_;
    const auto next = shares_.Next(owners_.begin(), owners_.end(), running_.size() == threads_);
    if (next == owners_.end()) return false;
    Owner& owner = next->second;
    const uint64_t number = shares_.Begin(next->first, owners_.begin(), owners_.end());
    owner.turn = ++turns_;
    const absl::Duration takes = owner.takes[owner.begun++ % owner.takes.size()];
    running_.push_back({next->first, absl::ZeroDuration(), takes, number});
    if (owner.pause > absl::ZeroDuration()) owner.comes = absl::InfiniteFuture();
    return true;
  }

  // Of a core, for each task that runs.
  double Speed() const {
    return std::min(1.0, static_cast<double>(cores_) / static_cast<double>(running_.size()));
  }

  absl::Time NextTime() const {
    absl::Time next = absl::InfiniteFuture();
    for (const Running& one : running_) next = std::min(next, now_ + (one.takes - one.computed) / Speed());
    for (const auto& [name, owner] : owners_)
      if (owner.comes > now_) next = std::min(next, owner.comes);
    return next;
  }

  void PassTo(absl::Time time) {
    const absl::Duration computed = (time - now_) * Speed();
    now_ = time;
    std::erase_if(running_, [&](Running& one) {
      one.computed = std::min(one.takes, one.computed + computed);
      // Clocks have whole fractions of nanoseconds.
      if (one.takes - one.computed > absl::Nanoseconds(10)) {
        shares_.SetComputed(one.number, one.computed);
        return false;
      }
      Owner& owner = owners_[one.owner];
      owner.given += one.takes;
      if (owner.pause > absl::ZeroDuration()) owner.comes = now_ + owner.pause;
      shares_.End(one.number, one.takes);
      return true;
    });
  }

  const size_t threads_;
  const size_t cores_;
  OwnerShares shares_;
  std::map<std::string, Owner> owners_;
  std::vector<Running> running_;
  uint64_t turns_ = 0;
  absl::Time now_ = absl::UnixEpoch();
};

// Threads, and cores.
class OwnerSharesTest : public testing::TestWithParam<std::pair<size_t, size_t>> {
 protected:
  Threads threads_{GetParam().first, GetParam().second};
};

TEST_P(OwnerSharesTest, OwnersThatAlwaysHaveATaskGetTheSameTimeHoweverLongTheirTasksTake) {
  const std::map<std::string, std::vector<absl::Duration>> takes = {
      {"a", {absl::Milliseconds(8)}},
      {"b", {absl::Milliseconds(70)}},
      {"c", {absl::Milliseconds(490)}},
      {"d", {absl::Milliseconds(900)}},
      {"e", {absl::Seconds(2)}},
      {"two jobs", {absl::Milliseconds(30), absl::Seconds(5)}},
      {"mostly short",
       {absl::Milliseconds(30), absl::Milliseconds(20), absl::Milliseconds(10), absl::Seconds(1)}}};
  for (const auto& [name, one] : takes) threads_.Add(name, one);
  threads_.RunFor(absl::Seconds(400));
  absl::Duration all;
  for (const auto& [name, one] : takes) all += threads_.GivenTo(name);
  for (const auto& [name, one] : takes)
    EXPECT_NEAR(absl::FDivDuration(threads_.GivenTo(name), all / takes.size()), 1, 0.1) << name;
}

TEST_P(OwnerSharesTest, WhoHasShortTasksAloneIsNotAheadByTheLongestTaskOfOthers) {
  threads_.Add("short", {absl::Milliseconds(20)});
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) threads_.Add(name, {absl::Milliseconds(2400)});
  threads_.RunFor(absl::Seconds(360));
  EXPECT_NEAR(absl::FDivDuration(threads_.GivenTo("short"), threads_.GivenTo("a")), 1, 0.1);
}

TEST_P(OwnerSharesTest, WhoHasLittleToPlanWaitsForNoLongTaskOfOthers) {
  for (const char* name : {"a", "b", "c", "d"}) threads_.Add(name, {absl::Seconds(2)});
  threads_.Add("little", {absl::Milliseconds(5)}, /*pause=*/absl::Milliseconds(50));
  // Until it is known to be short.
  threads_.RunFor(absl::Seconds(20));
  const absl::Duration before = threads_.GivenTo("little");
  threads_.RunFor(absl::Seconds(200));
  const double slower =
      std::max(1.0, static_cast<double>(GetParam().first + 1) / static_cast<double>(GetParam().second));
  EXPECT_GT(threads_.GivenTo("little") - before, absl::Seconds(200.0 * 5 / (5 * slower + 50) * 0.99));
}

INSTANTIATE_TEST_SUITE_P(ThreadsAndCores, OwnerSharesTest,
                         testing::Values(std::pair(1, 2), std::pair(3, 4), std::pair(6, 7), std::pair(1, 1),
                                         std::pair(6, 2)));

}  // namespace
}  // namespace penstock
