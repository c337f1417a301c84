// What to say when the planner has found that routers use experts less evenly than before, or evenly again.
//
//   if (const std::string news = expert_loads.Take(status); !news.empty()) console.SayNews(news);
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "penstock/v1/planner_service.pb.h"

namespace penstock::cli {

class ExpertLoadNews {
 public:
  // Empty where nothing has changed by as much as a person would mind.
  std::string Take(const v1::JobStatus& status);

 private:
  // What was said last; by the number of ranks that divide the experts.
  std::map<uint32_t, double> said_;
};

}  // namespace penstock::cli
