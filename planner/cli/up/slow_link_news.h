// What to say when the planner has found other slow links than before.
//
//   if (const std::string news = slow_links.Take(status); !news.empty()) console.SayNews(news);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "penstock/v1/planner_service.pb.h"

namespace penstock::cli {

class SlowLinkNews {
 public:
  // Empty where nothing has changed that a person would call another speed.
  std::string Take(const v1::JobStatus& status);

 private:
  // What was said last; by the ranks that it goes from and to.
  std::map<std::pair<uint32_t, uint32_t>, double> said_;
};

}  // namespace penstock::cli
