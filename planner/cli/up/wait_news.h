// What to say while a run waits for something: at once or when it has lasted, and then each minute.
//
//   if (const std::string news = quota_.Take(run.held_by_quota(), absl::Now()); !news.empty()) Say(news);
#pragma once

#include <string>

#include "absl/time/time.h"

namespace penstock::cli {

class WaitNews {
 public:
  static constexpr absl::Duration kAgain = absl::Minutes(1);
  // What ended less than this ago is not over: it comes and goes.
  static constexpr absl::Duration kOver = absl::Seconds(10);

  // What a planner that is started again has done by then.
  static constexpr absl::Duration kTrouble = absl::Seconds(10);

  // `worth`: how long it must have lasted.
  explicit WaitNews(absl::Duration worth = absl::ZeroDuration()) : worth_(worth) {}

  // `reason`: why it waits just now, empty: it does not. Empty where there is nothing to say, else the
  // reason.
  std::string Take(const std::string& reason, absl::Time now);

 private:
  const absl::Duration worth_;
  // When it began and was seen last, and when it was said last; of nothing: InfinitePast.
  absl::Time since_ = absl::InfinitePast();
  absl::Time seen_ = absl::InfinitePast();
  absl::Time said_ = absl::InfinitePast();
};

}  // namespace penstock::cli
