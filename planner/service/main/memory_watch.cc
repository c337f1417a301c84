#include "planner/service/main/memory_watch.h"

#include <utility>

#include "absl/time/time.h"

namespace penstock {
namespace {

// A plan takes up to a gigabyte a second.
constexpr absl::Duration kLookAgain = absl::Milliseconds(20);
constexpr absl::Duration kUntilWoken = absl::Hours(1);

}  // namespace

void MemoryWatch::Start(std::function<bool()> look) {
  MutexLock lock(&mutex_);
  ticker_ = std::make_unique<Ticker>("memory-watch", [this, look = std::move(look)] {
    // What begins behind this look wakes the next one.
    sleeps_ = true;
    const bool again = look();
    if (again) sleeps_ = false;
    return again ? kLookAgain : kUntilWoken;
  });
}

void MemoryWatch::Wake() {
  if (!sleeps_.exchange(false)) return;
  MutexLock lock(&mutex_);
  if (ticker_ != nullptr) ticker_->Wake();
}

void MemoryWatch::Stop() {
  std::unique_ptr<Ticker> ended;
  MutexLock lock(&mutex_);
  ended.swap(ticker_);
}

}  // namespace penstock
