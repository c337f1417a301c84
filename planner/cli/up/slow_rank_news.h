// What to say when the planner has found other slow ranks than before.
//
//   if (const std::string news = slow_ranks.Take(status); !news.empty()) console.SayNews(news);
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "penstock/v1/planner_service.pb.h"

namespace penstock::cli {

class SlowRankNews {
 public:
  // Empty where nothing has changed that a person would call another speed, or call slow.
  std::string Take(const v1::JobStatus& status);

 private:
  // What was said last; by rank.
  std::map<uint32_t, double> said_;
};

}  // namespace penstock::cli
