#include "planner/cli/sample_lengths.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/dataset/line_reader.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/csv_fields.h"

namespace penstock::cli {
namespace {

// Which fields of a row hold its lengths.
class Columns {
 public:
  static absl::StatusOr<Columns> FromHeader(const std::string& line) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, SplitFields(line));
    for (const char* name : {"input_tokens", "target_tokens", "tokens"}) {
      if (std::count(names.begin(), names.end(), name) > 1)
        return absl::InvalidArgumentError(absl::StrCat("column '", name, "' appears twice"));
    }
    const auto find = [&](const char* name) -> std::optional<size_t> {
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end()) return std::nullopt;
      return static_cast<size_t>(found - names.begin());
    };
    Columns columns;
    columns.input_ = find("input_tokens");
    columns.target_ = find("target_tokens");
    if (columns.input_.has_value() && columns.target_.has_value()) return columns;
    columns.input_ = std::nullopt;
    columns.target_ = find("tokens");
    if (columns.target_.has_value()) return columns;
    return absl::InvalidArgumentError(
        "the header needs columns input_tokens and target_tokens, or a column tokens");
  }

  absl::StatusOr<SampleLength> Parse(const std::string& line) const {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> fields, SplitFields(line));
    SampleLength length;
    if (input_.has_value()) PENSTOCK_RETURN_IF_ERROR(ParseField(fields, *input_, &length.input));
    PENSTOCK_RETURN_IF_ERROR(ParseField(fields, *target_, &length.target));
    return length;
  }

 private:
  static absl::Status ParseField(const std::vector<std::string>& fields, size_t column, uint32_t* tokens) {
    if (column >= fields.size())
      return absl::InvalidArgumentError(
          absl::StrCat("there are ", fields.size(), " fields, column ", column + 1, " is missing"));
    if (!absl::SimpleAtoi(fields[column], tokens))
      return absl::InvalidArgumentError(absl::StrCat("'", fields[column], "' is no number of tokens"));
    return absl::OkStatus();
  }

  std::optional<size_t> input_;
  std::optional<size_t> target_;
};

uint32_t Limit(uint32_t tokens, uint32_t own_limit, uint32_t common_limit) {
  const uint32_t limit = own_limit > 0 ? own_limit : common_limit;
  return limit > 0 ? std::min(tokens, limit) : tokens;
}

// Encoder-decoder.
SampleLength CutSides(const SampleLength& length, const LengthLimits& limits) {
  return {Limit(length.input, limits.max_input, limits.max_length),
          Limit(length.target, limits.max_target, limits.max_length)};
}

// Decoder-only.
SampleLength CutTogether(const SampleLength& length, const LengthLimits& limits) {
  if (limits.max_length == 0) return length;
  if (limits.cut == Cut::kTargetEnd) {
    const uint32_t learnt = std::min(length.target, 1u);
    const uint32_t input = std::min(length.input, limits.max_length - learnt);
    return {input, std::min(length.target, limits.max_length - input)};
  }
  const uint32_t target = std::min(length.target, limits.max_length);
  return {std::min(length.input, limits.max_length - target), target};
}

// The rows of the range that the file has, and how many rows it has up to the end of the range.
struct Rows {
  std::vector<SampleLength> lengths;
  uint64_t seen = 0;
};

absl::StatusOr<Rows> ReadRows(const std::string& path, const RowRange& rows) {
  PENSTOCK_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path));
  const auto annotate = [&](const absl::Status& status) {
    return AnnotateError(status, absl::StrCat("'", path, "', line ", reader.line_number()));
  };
  std::string line;
  PENSTOCK_ASSIGN_OR_RETURN(bool more, reader.Next(&line));
  if (!more)
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' is empty, expected CSV with a header"));
  const absl::StatusOr<Columns> columns = Columns::FromHeader(line);
  if (!columns.ok()) return annotate(columns.status());
  Rows result;
  uint64_t& row = result.seen;
  for (; row < rows.last; ++row) {
    PENSTOCK_ASSIGN_OR_RETURN(more, reader.Next(&line));
    if (!more || absl::StripAsciiWhitespace(line).empty()) break;
    if (row < rows.first) continue;
    const absl::StatusOr<SampleLength> length = columns->Parse(line);
    if (!length.ok()) return annotate(length.status());
    result.lengths.push_back(*length);
  }
  return result;
}

}  // namespace

absl::StatusOr<RowRange> ParseRows(const std::string& text) {
  RowRange rows;
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &rows.first) ||
      !absl::SimpleAtoi(parts[1], &rows.last) || rows.first >= rows.last)
    return absl::InvalidArgumentError(
        absl::StrCat("--rows is '", text, "': give two row numbers A:B with A below B, e.g. 0:256"));
  return rows;
}

absl::StatusOr<std::vector<SampleLength>> ReadLengths(const std::string& path, const RowRange& rows) {
  PENSTOCK_ASSIGN_OR_RETURN(Rows read, ReadRows(path, rows));
  if (read.seen < rows.last)
    return absl::OutOfRangeError(absl::StrCat("rows ", rows.first, ":", rows.last, " are needed, but '", path,
                                              "' has ", read.seen, ": give smaller --rows (or --batches)"));
  return std::move(read.lengths);
}

absl::StatusOr<std::vector<SampleLength>> ReadAllLengths(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(Rows read, ReadRows(path, {0, UINT64_MAX}));
  return std::move(read.lengths);
}

std::optional<SampleLength> CutToLimits(const SampleLength& length, v1::Architecture architecture,
                                        const LengthLimits& limits) {
  const SampleLength left =
      architecture == v1::ARCHITECTURE_T5 ? CutSides(length, limits) : CutTogether(length, limits);
  const bool whole = left.input == length.input && left.target == length.target;
  if (limits.cut == Cut::kDrop && !whole) return std::nullopt;
  return left;
}

uint32_t LearntTokens(const SampleLength& left, v1::Architecture architecture) {
  const uint32_t unpredicted = architecture != v1::ARCHITECTURE_T5 && left.input == 0 ? 1 : 0;
  return left.target - std::min(left.target, unpredicted);
}

SampleLoss LossOf(const SampleLength& left, v1::Architecture architecture, absl::Span<const float> weights) {
  SampleLoss loss;
  for (uint32_t i = left.target - LearntTokens(left, architecture); i < left.target; ++i) {
    loss.weight += double{weights[i]};
    loss.learnt += weights[i] > 0;
  }
  return loss;
}

}  // namespace penstock::cli
