#include "planner/cli/up/run_history.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>

namespace penstock::cli {

bool RunHistory::Take(const v1::IterationSummary& iteration) {
  const auto same =
      std::ranges::lower_bound(iterations, iteration.iteration(), {},
                               [](const v1::IterationSummary& other) { return other.iteration(); });
  if (same != iterations.end() && google::protobuf::util::MessageDifferencer::Equals(*same, iteration))
    return false;
  iterations.erase(same, iterations.end());
  iterations.push_back(iteration);
  return true;
}

}  // namespace penstock::cli
