// What transfers and collectives take, beside others that are called the same: by link, and by ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/core/diagnose/step_graph.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// Transfers of a name over a link, or collectives of a name of a group of ranks.
struct Exchange {
  int32_t name = 0;
  bool collective = false;
  // From, to; or the group's, ascending.
  std::vector<int32_t> ranks;
  // How many times as long they take as others of their name, relative to what was foreseen where that is
  // known. Transfers are compared with the median one, groups with the median group (of two, the faster).
  double factor = 1;
  bool foreseen = false;

  bool clearly_slow() const;
};

class ExchangeTimes {
 public:
  ExchangeTimes() = default;
  ExchangeTimes(const Timeline& timeline, const std::vector<StepGraph>& graphs);

  // What an activity of a step belongs to; null: it is neither a transfer nor a collective of several ranks.
  const Exchange* Of(size_t step, size_t activity) const {
    const int32_t exchange = of_activity_[step][activity];
    return exchange < 0 ? nullptr : &exchanges_[exchange];
  }

 private:
  // `times`: by exchange, relative to what was foreseen.
  void Compare(std::vector<std::vector<double>>& times);

  std::vector<Exchange> exchanges_;
  std::vector<std::vector<int32_t>> of_activity_;
};

}  // namespace penstock::core
