#include "planner/cli/text_table.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace penstock::cli {

std::string TextTable::ToString() const {
  std::vector<size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - row[c].size(), ' ');
      if (c == 0)
        absl::StrAppend(&text, row[c], c + 1 < row.size() ? padding : "");
      else
        absl::StrAppend(&text, "  ", padding, row[c]);
    }
    text += '\n';
  }
  return text;
}

std::string Percent(double ratio) { return absl::StrFormat("%.1f%%", 100 * ratio); }

std::string Fixed(double value, int digits) { return absl::StrFormat("%.*f", digits, value); }

}  // namespace penstock::cli
