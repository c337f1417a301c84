#include "worker/comm/bounded_call.h"

#include <memory>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"

namespace penstock::worker {

bool EndsWithin(absl::Duration limit, std::function<void()> body) {
  const auto ended = std::make_shared<absl::Notification>();
  std::thread([ended, body = std::move(body)]() mutable {
    body();
    // What it holds goes before anybody learns that it has ended.
    body = nullptr;
    ended->Notify();
  }).detach();
  return ended->WaitForNotificationWithTimeout(limit);
}

}  // namespace penstock::worker
