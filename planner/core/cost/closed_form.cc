#include "planner/core/cost/closed_form.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace penstock::core {
namespace {

// Length of the number at the front: digits, point, exponent.
size_t NumberLength(absl::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const char c = text[length];
    const bool exponent =
        c == 'e' && length > 0 && length + 1 < text.size() && absl::ascii_isdigit(text[length + 1]);
    if (!absl::ascii_isdigit(c) && c != '.' && !exponent) break;
    ++length;
  }
  return length;
}

absl::Status Mismatch(absl::string_view pattern, absl::string_view rest) {
  return absl::InvalidArgumentError(absl::StrCat("expected a formula of the form '", pattern,
                                                 "' (# is a number), found something else at '", rest, "'"));
}

}  // namespace

absl::StatusOr<std::vector<double>> MatchFormula(absl::string_view pattern, absl::string_view text) {
  std::vector<double> numbers;
  absl::string_view rest = text;
  for (const char expected : pattern) {
    if (expected != '#') {
      if (rest.empty() || rest.front() != expected) return Mismatch(pattern, rest);
      rest.remove_prefix(1);
      continue;
    }
    const size_t length = NumberLength(rest);
    double number = 0;
    if (length == 0 || !absl::SimpleAtod(rest.substr(0, length), &number)) return Mismatch(pattern, rest);
    numbers.push_back(number);
    rest.remove_prefix(length);
  }
  const bool clean_end = rest.empty() || rest.front() == ' ' || rest.front() == ';' || rest.front() == '(';
  if (!clean_end) return Mismatch(pattern, rest);
  return numbers;
}

}  // namespace penstock::core
