// --rank-memory-mb: the memory of ranks that have more or less than --memory-mb says.
//
//   penstock plan ... --memory-mb 80000 --rank-memory-mb 3:40000,4-7:141000
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/v1/job.pb.h"

namespace CLI {
class App;
}

namespace penstock::cli {

struct RankMemoryFlag {
  struct Limit {
    uint32_t rank = 0;
    int64_t bytes = 0;
  };
  // Ascending by rank, each once.
  std::vector<Limit> limits = {};
  // Ranks have other numbers than those of `limits`: all have the least that one has (UseLeastOf).
  bool only_least = false;

  // This object must outlive the parse.
  void AddTo(CLI::App& command);
  void AddTo(v1::PlanningOptions* options) const;
  // Where `only_least` is set, and the job has its profile and its memory limit.
  void UseLeastOf(v1::JobSpec* job) const;
};

}  // namespace penstock::cli
