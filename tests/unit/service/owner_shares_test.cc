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

// As PlanningPool's.
constexpr absl::Duration kTurn = absl::Milliseconds(20);

struct Task {
  std::string owner;
  absl::Duration takes;
  uint64_t number = 0;
  absl::Duration computed = {};
  // What is left of its turn.
  absl::Duration turn = {};
};

struct Owner {
  std::vector<Task> paused;
  uint64_t turn = 0;
  // Of its tasks, in turn.
  std::vector<absl::Duration> takes;
  size_t begun = 0;
  absl::Duration given;
  // Time between its tasks; zero: it always has one waiting.
  absl::Duration pause;
  bool has_one = true;
  absl::Time comes = absl::UnixEpoch();

  bool waits() const { return has_one || !paused.empty(); }
};

// Threads that compute for owners on cores that they share evenly, in turns, and time that passes from one
// event to the next.
class Threads {
 public:
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
  bool BeginOne() {
    for (auto& [name, owner] : owners_) owner.has_one = owner.comes <= now_;
    if (running_.size() == threads_) return false;
    const auto next = shares_.Next(owners_.begin(), owners_.end());
    if (next == owners_.end()) return false;
    Owner& owner = next->second;
    owner.turn = ++turns_;
    if (!owner.paused.empty()) {
      shares_.GoOn(owners_.begin(), owners_.end());
      running_.push_back(owner.paused.front());
      owner.paused.erase(owner.paused.begin());
    } else {
      const uint64_t number = shares_.Begin(next->first, owners_.begin(), owners_.end());
      running_.push_back({next->first, owner.takes[owner.begun++ % owner.takes.size()], number});
      if (owner.pause > absl::ZeroDuration()) owner.comes = absl::InfiniteFuture();
    }
    running_.back().turn = kTurn;
    return true;
  }

  // Of a core, for each task that runs.
  double Speed() const {
    return std::min(1.0, static_cast<double>(cores_) / static_cast<double>(running_.size()));
  }

  absl::Time NextTime() const {
    absl::Time next = absl::InfiniteFuture();
    for (const Task& one : running_)
      next = std::min(next, now_ + std::min(one.takes - one.computed, one.turn) / Speed());
    for (const auto& [name, owner] : owners_)
      if (owner.comes > now_) next = std::min(next, owner.comes);
    return next;
  }

  void PassTo(absl::Time time) {
    const absl::Duration computed = (time - now_) * Speed();
    now_ = time;
    std::erase_if(running_, [&](Task& one) {
      Owner& owner = owners_[one.owner];
      const absl::Duration more = std::min(one.takes - one.computed, computed);
      one.computed += more;
      one.turn -= more;
      owner.given += more;
      // Clocks have whole fractions of nanoseconds.
      if (one.takes - one.computed > absl::Nanoseconds(10)) {
        shares_.SetComputed(one.number, one.computed);
        if (one.turn > absl::Nanoseconds(10)) return false;
        owner.paused.push_back(one);
        return true;
      }
      if (owner.pause > absl::ZeroDuration()) owner.comes = now_ + owner.pause;
      shares_.End(one.number, one.takes);
      return true;
    });
  }

  const size_t threads_;
  const size_t cores_;
  OwnerShares shares_;
  std::map<std::string, Owner> owners_;
  std::vector<Task> running_;
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
  threads_.RunFor(absl::Seconds(100));
  absl::Duration all;
  for (const auto& [name, one] : takes) all += threads_.GivenTo(name);
  for (const auto& [name, one] : takes)
    EXPECT_NEAR(absl::FDivDuration(threads_.GivenTo(name), all / takes.size()), 1, 0.1) << name;
}

// Within turns, and not within the longest task: here a task takes a tenth of the whole time.
TEST_P(OwnerSharesTest, SharesAreEvenWhileLongTasksAreNotEnded) {
  threads_.Add("short", {absl::Milliseconds(20)});
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) threads_.Add(name, {absl::Seconds(6)});
  threads_.RunFor(absl::Seconds(60));
  for (const char* name : {"a", "g"})
    EXPECT_NEAR(absl::FDivDuration(threads_.GivenTo("short"), threads_.GivenTo(name)), 1, 0.02) << name;
}

TEST_P(OwnerSharesTest, WhoHasLittleToPlanWaitsForAFewTurnsOfOthers) {
  for (const char* name : {"a", "b", "c", "d"}) threads_.Add(name, {absl::Seconds(20)});
  threads_.Add("little", {absl::Milliseconds(5)}, /*pause=*/absl::Milliseconds(50));
  threads_.RunFor(absl::Seconds(50));
  const double slower =
      std::max(1.0, static_cast<double>(GetParam().first) / static_cast<double>(GetParam().second));
  const absl::Duration each = slower * (absl::Milliseconds(5) + 2 * kTurn) + absl::Milliseconds(50);
  EXPECT_GT(threads_.GivenTo("little"), absl::Milliseconds(5) * absl::FDivDuration(absl::Seconds(50), each));
}

INSTANTIATE_TEST_SUITE_P(ThreadsAndCores, OwnerSharesTest,
                         testing::Values(std::pair(1, 2), std::pair(3, 4), std::pair(6, 7), std::pair(1, 1),
                                         std::pair(6, 2)));

}  // namespace
}  // namespace penstock
