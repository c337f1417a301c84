#include "planner/cli/up/wait_news.h"

namespace penstock::cli {

std::string WaitNews::Take(const std::string& reason, absl::Time now) {
  if (reason.empty()) return "";
  if (now - seen_ > kOver) {
    since_ = now;
    said_ = absl::InfinitePast();
  }
  seen_ = now;
  if (now - since_ < worth_ || now - said_ < kAgain) return "";
  said_ = now;
  return reason;
}

}  // namespace penstock::cli
