// Links of single ranks over which bytes travel slower than over others of their kind.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "absl/types/span.h"
#include "planner/core/cost/profile.h"

namespace penstock::core {

class SlowLinks {
 public:
  // Of a link that occurs twice, the larger factor counts.
  explicit SlowLinks(absl::Span<const SlowLink> links);

  bool any() const { return !factors_.empty(); }
  // At least 1.
  double FactorOf(int32_t from, int32_t to) const;
  // What a transfer of `ns` takes from one rank to the other; rounded.
  int64_t Slowed(int64_t ns, int32_t from, int32_t to) const;

 private:
  std::map<std::pair<int32_t, int32_t>, double> factors_;
};

}  // namespace penstock::core
