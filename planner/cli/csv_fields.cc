#include "planner/cli/csv_fields.h"

namespace penstock::cli {

absl::StatusOr<std::vector<std::string>> SplitFields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else if (c != '\r')
      fields.back() += c;
  }
  if (quoted) return absl::InvalidArgumentError("a quote is not closed");
  return fields;
}

}  // namespace penstock::cli
