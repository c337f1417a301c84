#include "common/sync/ticker.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <future>
#include <string>

namespace penstock {
namespace {

// Longer than a test may take.
constexpr absl::Duration kNever = absl::Hours(1);

std::string NameOfThisThread() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

TEST(TickerTest, CallsAgainAndAgainByAThreadOfItsName) {
  int calls = 0;
  std::promise<std::string> name;
  const Ticker ticker("fifteen letters", absl::Milliseconds(1), [&] {
    if (++calls == 3) name.set_value(NameOfThisThread());
  });
  EXPECT_EQ(name.get_future().get(), "fifteen letters");
}

TEST(TickerTest, CallsAfterWhatTheCallBeforeItSaid) {
  int calls = 0;
  std::promise<void> third;
  const Ticker ticker("ticker", [&] {
    if (++calls == 3) third.set_value();
    return calls < 3 ? absl::Milliseconds(1) : kNever;
  });
  third.get_future().wait();
}

TEST(TickerTest, IsWokenFromALongPauseAndEndsInOne) {
  int calls = 0;
  std::promise<void> first, second;
  Ticker ticker("ticker", [&] {
    ++calls;
    if (calls == 1) first.set_value();
    if (calls == 2) second.set_value();
    return kNever;
  });
  first.get_future().wait();
  ticker.Wake();
  second.get_future().wait();
}

// A call that is asked for while one runs, and has perhaps seen too little, comes behind it.
TEST(TickerTest, IsWokenWhileACallRuns) {
  int calls = 0;
  std::promise<void> runs, go_on, second;
  auto gone_on = go_on.get_future();
  Ticker ticker("ticker", [&] {
    ++calls;
    if (calls == 1) {
      runs.set_value();
      gone_on.wait();
    }
    if (calls == 2) second.set_value();
    return kNever;
  });
  runs.get_future().wait();
  ticker.Wake();
  go_on.set_value();
  second.get_future().wait();
}

}  // namespace
}  // namespace penstock
