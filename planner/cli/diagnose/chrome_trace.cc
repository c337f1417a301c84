#include "planner/cli/diagnose/chrome_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/dataset/line_reader.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/core/diagnose/timeline_builder.h"
#include "planner/core/timeline/operation_of_instruction.h"

namespace penstock::cli {
namespace {

using TraceJson = nlohmann::json;

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr double kNanosecondsPerMicrosecond = 1e3;
constexpr double kShortestWaitUs = core::kShortestWaitNs / kNanosecondsPerMicrosecond;
constexpr double kNanosecondsPerMillisecond = 1e6;

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path));
  std::string all, line;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) return all;
    if (all.size() + line.size() > kMostBytes)
      return absl::InvalidArgumentError(absl::StrCat(path, ": longer than 1 GiB"));
    absl::StrAppend(&all, line, "\n");
  }
}

// The first of the names that is there.
const TraceJson* Find(const TraceJson& arguments, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = arguments.find(name);
    if (found != arguments.end()) return &*found;
  }
  return nullptr;
}

class EventReader {
 public:
  explicit EventReader(const TraceJson& event) : event_(event), arguments_(event["args"]) {}

  absl::StatusOr<core::OperationRecord> Read() {
    core::OperationRecord record;
    ReadInteger({"rank"}, record.rank);
    ReadInteger({"replica", "dp_rank"}, record.replica);
    ReadInteger({"position", "stage"}, record.stage);
    ReadInteger({"step", "iteration"}, record.step);
    ReadInteger({"micro_batch", "mb_id"}, record.micro_batch);
    if (arguments_.contains("position"))
      ReadInteger({"stage"}, record.model_stage);
    else
      ReadInteger({"model_stage", "gmc"}, record.model_stage);
    const TraceJson* const kind = Find(arguments_, {"optype", "kind"});
    if (kind->is_string()) record.name = kind->get<std::string>();
    record.start_ns = Nanoseconds(event_, "ts", kNanosecondsPerMicrosecond);
    record.duration_ns = Nanoseconds(event_, "dur", kNanosecondsPerMicrosecond);
    if (arguments_.contains("expected_ms"))
      record.expected_ns = Nanoseconds(arguments_, "expected_ms", kNanosecondsPerMillisecond);
    // What a rank would take that is as fast as the others.
    if (const auto slow = arguments_.find("slow_factor");
        slow != arguments_.end() && slow->is_number() && slow->get<double>() > 1)
      record.expected_ns = std::llround(static_cast<double>(record.expected_ns) / slow->get<double>());
    if (const auto share = arguments_.find("core_share"); share != arguments_.end() && share->is_number())
      record.core_share = share->get<double>();
    // Of a stage group, where it is known; foreseen of a rank that is as fast as the others.
    if (arguments_.contains("computed_ms") && arguments_.contains("expected_computed_ms")) {
      record.computed_ns =
          std::min(record.duration_ns, Nanoseconds(arguments_, "computed_ms", kNanosecondsPerMillisecond));
      record.expected_computed_ns =
          Nanoseconds(arguments_, "expected_computed_ms", kNanosecondsPerMillisecond);
    }
    // Only ours say in which order they are.
    if (arguments_.contains("position")) ReadOrder(record);
    PENSTOCK_RETURN_IF_ERROR(status_);
    return record;
  }

 private:
  void ReadOrder(core::OperationRecord& record) {
    ReadInteger({"id"}, record.id);
    if (event_.value("tid", TraceJson()).is_number_integer()) record.stream = event_["tid"].get<int64_t>();
    if (!arguments_.value("deps", TraceJson()).is_string()) return;
    for (const absl::string_view dep : absl::StrSplit(arguments_["deps"].get<std::string>(), ", ")) {
      int64_t id = 0;
      if (absl::SimpleAtoi(dep, &id))
        record.after.push_back(id);
      else
        status_.Update(absl::InvalidArgumentError(absl::StrCat("args.deps: '", dep, "' is no number")));
    }
  }

  void ReadInteger(std::initializer_list<const char*> names, int64_t& value) {
    const TraceJson* const found = Find(arguments_, names);
    if (found == nullptr) return;
    if (found->is_number_integer())
      value = found->get<int64_t>();
    else
      status_.Update(absl::InvalidArgumentError(
          absl::StrCat("args.", *names.begin(), " is ", found->dump(), "; must be a whole number")));
  }

  int64_t Nanoseconds(const TraceJson& of, const char* name, double unit) {
    const auto found = of.find(name);
    if (found != of.end() && found->is_number() && std::abs(found->get<double>() * unit) < 4e18)
      return std::llround(found->get<double>() * unit);
    status_.Update(absl::InvalidArgumentError(absl::StrCat(name, " is no time")));
    return 0;
  }

  const TraceJson& event_;
  const TraceJson& arguments_;
  absl::Status status_;
};

bool IsSlice(const TraceJson& event) {
  return event.is_object() && event.value("ph", TraceJson()) == "X" && event.contains("args") &&
         event["args"].is_object();
}

bool IsOperation(const TraceJson& event) {
  if (!IsSlice(event)) return false;
  const TraceJson& arguments = event["args"];
  return arguments.contains("stage") && Find(arguments, {"step", "iteration"}) != nullptr &&
         Find(arguments, {"optype", "kind"}) != nullptr;
}

// A receive of a Penstock worker is posted at once; what it asked for is there when the wait for it ends, if
// that has waited. By rank, iteration and id, as text.
class Arrivals {
 public:
  explicit Arrivals(const TraceJson& events) {
    for (const TraceJson& event : events) {
      if (!IsSlice(event) || !event["args"].contains("transfer_id")) continue;
      if (HasTimes(event) && event["dur"].get<double>() > kShortestWaitUs)
        end_us_[KeyOf(event["args"], "transfer_id")] = EndUs(event);
    }
  }

  // Lengthens the event of a receive.
  void Complete(TraceJson& event) const {
    if (end_us_.empty() || !HasTimes(event)) return;
    const auto found = end_us_.find(KeyOf(event["args"], "id"));
    if (found != end_us_.end())
      event["dur"] = std::max(EndUs(event), found->second) - event["ts"].get<double>();
  }

 private:
  static bool HasTimes(const TraceJson& event) {
    return event.value("ts", TraceJson()).is_number() && event.value("dur", TraceJson()).is_number();
  }
  static double EndUs(const TraceJson& event) {
    return event["ts"].get<double>() + event["dur"].get<double>();
  }
  static std::string KeyOf(const TraceJson& arguments, const char* id) {
    return absl::StrCat(arguments.value("rank", TraceJson()).dump(), " ",
                        arguments.value("iteration", TraceJson()).dump(), " ",
                        arguments.value(id, TraceJson()).dump());
  }

  std::map<std::string, double> end_us_;
};

}  // namespace

absl::StatusOr<core::Timeline> ReadChromeTrace(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadAll(path));
  return ParseChromeTrace(path, text);
}

absl::StatusOr<core::Timeline> ParseChromeTrace(const std::string& name, const std::string& text) {
  TraceJson trace = TraceJson::parse(text, nullptr, /*allow_exceptions=*/false);
  TraceJson* events = &trace;
  if (trace.is_object() && trace.contains("traceEvents")) events = &trace["traceEvents"];
  if (!events->is_array())
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": is neither CSV nor a Chrome trace (a list of events)"));
  core::TimelineBuilder builder;
  const Arrivals arrivals(*events);
  for (size_t i = 0; i < events->size(); ++i) {
    TraceJson& event = (*events)[i];
    if (!IsOperation(event)) continue;
    arrivals.Complete(event);
    absl::StatusOr<core::OperationRecord> record = EventReader(event).Read();
    const absl::Status added = record.ok() ? builder.Add(*std::move(record)) : record.status();
    if (!added.ok()) return AnnotateError(added, absl::StrCat(name, ": traceEvents[", i, "]"));
  }
  absl::StatusOr<core::Timeline> timeline = builder.Build();
  return timeline.ok() ? std::move(timeline) : AnnotateError(timeline.status(), name);
}

}  // namespace penstock::cli
