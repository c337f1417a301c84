#include "planner/cli/diagnose/csv_trace.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/dataset/line_reader.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/csv_fields.h"
#include "planner/core/diagnose/timeline_builder.h"

namespace penstock::cli {
namespace {

// A column of times, and how many nanoseconds its unit has.
struct TimeColumn {
  size_t column = 0;
  double nanoseconds = 1;
};

class TraceColumns {
 public:
  static absl::StatusOr<TraceColumns> FromHeader(const std::string& line) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, SplitFields(line));
    TraceColumns columns;
    columns.names_ = names;
    columns.rank_ = columns.Find({"rank"});
    columns.replica_ = columns.Find({"dp_rank", "replica"});
    columns.micro_batch_ = columns.Find({"mb_id", "micro_batch"});
    columns.model_stage_ = columns.Find({"gmc", "model_stage"});
    columns.core_share_ = columns.Find({"core_share"});
    PENSTOCK_ASSIGN_OR_RETURN(columns.stage_, columns.Need({"stage"}));
    PENSTOCK_ASSIGN_OR_RETURN(columns.step_, columns.Need({"step", "iteration"}));
    PENSTOCK_ASSIGN_OR_RETURN(columns.kind_, columns.Need({"optype", "kind"}));
    PENSTOCK_ASSIGN_OR_RETURN(columns.start_, columns.NeedTime("start_ts", "start"));
    PENSTOCK_ASSIGN_OR_RETURN(columns.duration_, columns.NeedTime("duration", "duration"));
    return columns;
  }

  absl::StatusOr<core::OperationRecord> Parse(const std::string& line) const {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> fields, SplitFields(line));
    if (fields.size() != names_.size())
      return absl::InvalidArgumentError(
          absl::StrCat(fields.size(), " fields; the header has ", names_.size()));
    core::OperationRecord record;
    record.name = fields[kind_];
    PENSTOCK_RETURN_IF_ERROR(ReadInteger(fields, rank_, record.rank));
    PENSTOCK_RETURN_IF_ERROR(ReadInteger(fields, replica_, record.replica));
    PENSTOCK_RETURN_IF_ERROR(ReadInteger(fields, stage_, record.stage));
    PENSTOCK_RETURN_IF_ERROR(ReadInteger(fields, step_, record.step));
    PENSTOCK_RETURN_IF_ERROR(ReadInteger(fields, micro_batch_, record.micro_batch));
    PENSTOCK_RETURN_IF_ERROR(ReadInteger(fields, model_stage_, record.model_stage));
    PENSTOCK_RETURN_IF_ERROR(ReadShare(fields, core_share_, record.core_share));
    PENSTOCK_RETURN_IF_ERROR(ReadTime(fields, start_, record.start_ns));
    PENSTOCK_RETURN_IF_ERROR(ReadTime(fields, duration_, record.duration_ns));
    return record;
  }

 private:
  std::optional<size_t> Find(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      const auto found = std::find(names_.begin(), names_.end(), name);
      if (found != names_.end()) return static_cast<size_t>(found - names_.begin());
    }
    return std::nullopt;
  }

  absl::StatusOr<size_t> Need(std::initializer_list<const char*> names) const {
    const std::optional<size_t> found = Find(names);
    if (found.has_value()) return *found;
    return absl::InvalidArgumentError(
        absl::StrCat("the header has no column ", absl::StrJoin(names, " or ")));
  }

  // In seconds by its plain name, or with a unit behind it.
  absl::StatusOr<TimeColumn> NeedTime(const std::string& plain, const std::string& name) const {
    const std::pair<std::string, double> units[] = {
        {plain, 1e9}, {name + "_s", 1e9}, {name + "_ms", 1e6}, {name + "_us", 1e3}, {name + "_ns", 1}};
    for (const auto& [column, nanoseconds] : units) {
      const std::optional<size_t> found = Find({column.c_str()});
      if (found.has_value()) return TimeColumn{.column = *found, .nanoseconds = nanoseconds};
    }
    return absl::InvalidArgumentError(absl::StrCat("the header has no column ", plain, " (seconds), ", name,
                                                   "_ms, ", name, "_us or ", name, "_ns"));
  }

  absl::Status ReadInteger(const std::vector<std::string>& fields, std::optional<size_t> column,
                           int64_t& value) const {
    if (!column.has_value() || absl::SimpleAtoi(fields[*column], &value)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(names_[*column], " is '", fields[*column], "'; must be a whole number"));
  }

  // Of operations that say nothing it stays as it is.
  absl::Status ReadShare(const std::vector<std::string>& fields, std::optional<size_t> column,
                         double& value) const {
    if (!column.has_value() || fields[*column].empty() || absl::SimpleAtod(fields[*column], &value))
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(names_[*column], " is '", fields[*column], "'; must be a number"));
  }

  absl::Status ReadTime(const std::vector<std::string>& fields, const TimeColumn& column,
                        int64_t& value) const {
    double time = 0;
    // 2^53 nanoseconds are 104 days.
    if (!absl::SimpleAtod(fields[column.column], &time) || !(std::abs(time * column.nanoseconds) < 4e18))
      return absl::InvalidArgumentError(
          absl::StrCat(names_[column.column], " is '", fields[column.column], "'; must be a time"));
    value = std::llround(time * column.nanoseconds);
    return absl::OkStatus();
  }

  std::vector<std::string> names_;
  std::optional<size_t> rank_, replica_, micro_batch_, model_stage_, core_share_;
  size_t stage_ = 0, step_ = 0, kind_ = 0;
  TimeColumn start_, duration_;
};

}  // namespace

absl::StatusOr<core::Timeline> ReadCsvTrace(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path));
  const auto at_line = [&](const absl::Status& status) {
    return AnnotateError(status, absl::StrCat(path, ", line ", reader.line_number()));
  };
  std::string line;
  PENSTOCK_ASSIGN_OR_RETURN(const bool has_header, reader.Next(&line));
  if (!has_header) return absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
  const absl::StatusOr<TraceColumns> columns = TraceColumns::FromHeader(line);
  if (!columns.ok()) return at_line(columns.status());
  core::TimelineBuilder builder;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) break;
    if (line.empty() || line == "\r") continue;
    absl::StatusOr<core::OperationRecord> record = columns->Parse(line);
    if (!record.ok()) return at_line(record.status());
    if (const absl::Status added = builder.Add(*std::move(record)); !added.ok()) return at_line(added);
  }
  absl::StatusOr<core::Timeline> timeline = builder.Build();
  return timeline.ok() ? std::move(timeline) : AnnotateError(timeline.status(), path);
}

}  // namespace penstock::cli
