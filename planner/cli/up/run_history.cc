#include "planner/cli/up/run_history.h"

#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>

namespace penstock::cli {
namespace {

// But for what the planner keeps of the newest alone. A loss that is no number is the same as itself.
bool IsTheSame(const v1::IterationSummary& a, const v1::IterationSummary& b) {
  google::protobuf::util::MessageDifferencer differencer;
  differencer.IgnoreField(
      v1::IterationSummary::descriptor()->FindFieldByNumber(v1::IterationSummary::kExpertLayersFieldNumber));
  google::protobuf::util::DefaultFieldComparator numbers;
  numbers.set_treat_nan_as_equal(true);
  differencer.set_field_comparator(&numbers);
  return differencer.Compare(a, b);
}

}  // namespace

bool RunHistory::Take(const v1::IterationSummary& iteration) {
  const auto same =
      std::ranges::lower_bound(iterations, iteration.iteration(), {},
                               [](const v1::IterationSummary& other) { return other.iteration(); });
  if (same != iterations.end() && IsTheSame(*same, iteration)) return false;
  iterations.erase(same, iterations.end());
  iterations.push_back(iteration);
  return true;
}

}  // namespace penstock::cli
