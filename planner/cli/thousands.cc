#include "planner/cli/thousands.h"

#include "absl/strings/str_format.h"

namespace penstock::cli {

std::string WithThousands(double value) {
  std::string digits = absl::StrFormat("%.0f", value);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, 1, ',');
  return digits;
}

}  // namespace penstock::cli
