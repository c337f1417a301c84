#include "planner/core/diagnose/timeline_builder.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/status_macros.h"

namespace penstock::core {
namespace {

// Traces have at most as many ranks, stages and micro-batches.
constexpr int64_t kMost = 1'000'000;
constexpr int64_t kMostModelStages = 65'536;
// Micro-batches of all steps and replicas, for each of which something is kept.
constexpr int64_t kMostWorks = 50'000'000;
// Ten days.
constexpr int64_t kLongestNs = 864'000'000'000'000;

absl::Status CheckRange(const char* field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; must be ", least, " to ", most));
}

absl::Status CheckRecord(const OperationRecord& record) {
  if (record.name.empty()) return absl::InvalidArgumentError("kind is empty");
  PENSTOCK_RETURN_IF_ERROR(CheckRange("rank", record.rank, -1, kMost));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("replica", record.replica, 0, kMost));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("stage", record.stage, 0, kMost));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("micro_batch", record.micro_batch, -1, kMost));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("model_stage", record.model_stage, -1, kMostModelStages));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("duration in ns", record.duration_ns, 0, kLongestNs));
  if (!(record.core_share > 0) || record.core_share > 1)
    return absl::InvalidArgumentError(
        absl::StrCat("core_share is ", record.core_share, "; must be above 0, at most 1"));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("computed ns", record.computed_ns, 0, record.duration_ns));
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange("expected computing in ns", record.expected_computed_ns, 0, kLongestNs));
  return CheckRange("expected duration in ns", record.expected_ns, 0, kLongestNs);
}

}  // namespace

OperationKind KindOfName(const std::string& name) {
  const std::string plain = absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", "-"}, {" ", "-"}});
  static const auto* const kKinds = new std::map<std::string, OperationKind>{
      {"forward", OperationKind::kForward},
      {"forward-compute", OperationKind::kForward},
      {"backward", OperationKind::kBackward},
      {"backward-compute", OperationKind::kBackward},
      {"backward-input", OperationKind::kBackwardInput},
      {"backward-weight", OperationKind::kBackwardWeight},
      {"forward-send", OperationKind::kSendForward},
      {"send-forward", OperationKind::kSendForward},
      {"forward-recv", OperationKind::kReceiveForward},
      {"recv-forward", OperationKind::kReceiveForward},
      {"backward-send", OperationKind::kSendBackward},
      {"send-backward", OperationKind::kSendBackward},
      {"backward-recv", OperationKind::kReceiveBackward},
      {"recv-backward", OperationKind::kReceiveBackward},
      {"wait", OperationKind::kWait},
      {"batch-wait", OperationKind::kBatchWait},
      {"data-wait", OperationKind::kBatchWait},
      {"dataloader", OperationKind::kBatchWait},
      {"data-loader", OperationKind::kBatchWait},
  };
  const auto found = kKinds->find(plain);
  if (found != kKinds->end()) return found->second;
  for (const char* part : {"reduce", "gather", "scatter", "broadcast", "all-to-all", "alltoall"}) {
    if (absl::StrContains(plain, part)) return OperationKind::kCollective;
  }
  return OperationKind::kLocal;
}

absl::Status TimelineBuilder::Add(OperationRecord record) {
  PENSTOCK_RETURN_IF_ERROR(CheckRecord(record));
  if (record.rank >= 0) {
    const auto [place, added] = places_.try_emplace(record.rank, record.replica, record.stage);
    if (place->second != std::tuple(record.replica, record.stage))
      return absl::InvalidArgumentError(absl::StrCat("rank ", record.rank, " is at replica ", record.replica,
                                                     ", stage ", record.stage, ", and elsewhere before"));
  }
  Operation operation;
  operation.rank = RankOf(record);
  operation.kind = KindOfName(record.name);
  // Without an order nobody knows what is waited for: the other end of a transfer, and what it takes, tell.
  if (operation.kind == OperationKind::kWait && record.id < 0) return absl::OkStatus();
  operation.name =
      name_positions_.try_emplace(record.name, static_cast<int32_t>(name_positions_.size())).first->second;
  operation.micro_batch = static_cast<int32_t>(record.micro_batch);
  const bool pass = IsPassKind(operation.kind);
  operation.model_stage =
      static_cast<int32_t>(pass && record.model_stage < 0 ? record.stage : record.model_stage);
  operation.start_ns = record.start_ns;
  operation.duration_ns = record.duration_ns;
  operation.expected_ns = record.expected_ns;
  operation.core_share = record.core_share;
  // Both, or nothing is told by them.
  if (record.expected_computed_ns > 0) {
    operation.computed_ns = record.computed_ns;
    operation.expected_computed_ns = record.expected_computed_ns;
  }
  steps_[record.step].push_back(
      {.operation = operation, .id = record.id, .stream = record.stream, .after = std::move(record.after)});
  return absl::OkStatus();
}

int32_t TimelineBuilder::RankOf(const OperationRecord& record) {
  const auto [found, added] = rank_positions_.try_emplace({record.rank, record.replica, record.stage},
                                                          static_cast<int32_t>(ranks_.size()));
  if (added) ranks_.push_back({.number = record.rank, .replica = record.replica, .stage = record.stage});
  return found->second;
}

// Ranks that share a stage and a replica (tensor ranks) are replicas of their own: each talks to its like.
absl::Status TimelineBuilder::PlaceRanks(Timeline& timeline) const {
  std::map<std::pair<int64_t, int64_t>, std::set<std::pair<int64_t, int32_t>>> members;
  for (size_t i = 0; i < ranks_.size(); ++i)
    members[{ranks_[i].replica, ranks_[i].stage}].insert({ranks_[i].number, static_cast<int32_t>(i)});
  timeline.places.resize(ranks_.size());
  std::set<int64_t> stages;
  std::map<std::pair<int64_t, int32_t>, int32_t> replicas;
  for (const auto& [place, ranks] : members) {
    stages.insert(place.second);
    int32_t member = 0;
    for (const auto& [number, position] : ranks) {
      const auto replica =
          replicas.try_emplace({place.first, member++}, static_cast<int32_t>(replicas.size()));
      timeline.places[position] = {.stage = static_cast<int32_t>(place.second),
                                   .replica = replica.first->second,
                                   .group_replica = static_cast<int32_t>(place.first)};
    }
  }
  timeline.stages = static_cast<int32_t>(stages.size());
  timeline.replicas = static_cast<int32_t>(replicas.size());
  if (*stages.rbegin() + 1 != timeline.stages)
    return absl::InvalidArgumentError(absl::StrCat("stages go up to ", *stages.rbegin(), ", but only ",
                                                   timeline.stages, " of them have ranks"));
  for (size_t i = 0; i < ranks_.size(); ++i) {
    timeline.rank_numbers.push_back(
        ranks_[i].number >= 0 ? static_cast<int32_t>(ranks_[i].number)
                              : static_cast<int32_t>(ranks_[i].replica * timeline.stages + ranks_[i].stage));
  }
  return absl::OkStatus();
}

absl::StatusOr<TimelineStep> TimelineBuilder::StepOf(int64_t number, std::vector<Entry> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& one, const Entry& other) {
    return std::tie(one.operation.rank, one.operation.start_ns) <
           std::tie(other.operation.rank, other.operation.start_ns);
  });
  TimelineStep step;
  step.number = number;
  std::map<std::pair<int32_t, int32_t>, int32_t> counts;
  // From 0 without gaps, whatever they are called.
  std::map<int32_t, int32_t> micro_batches;
  bool known_order = true;
  for (const Entry& entry : entries) {
    Operation operation = entry.operation;
    operation.number = counts[{operation.rank, operation.name}]++;
    // Whoever does not say which micro-batch a pass is of runs them in the same order on all stages.
    if (IsPassKind(operation.kind) && operation.micro_batch < 0) operation.micro_batch = operation.number;
    if (operation.micro_batch >= 0) {
      operation.micro_batch =
          micro_batches.try_emplace(operation.micro_batch, static_cast<int32_t>(micro_batches.size()))
              .first->second;
    }
    step.operations.push_back(operation);
    // What a rank waits for first needs no number.
    known_order = known_order && (entry.id >= 0 || operation.kind == OperationKind::kBatchWait);
  }
  BeginWaitsTogether(step);
  if (known_order) PENSTOCK_RETURN_IF_ERROR(KeepOrder(entries, step));
  return step;
}

// A batch is waited for from when the last of those that wait is done with the step before: until then
// nothing is lost.
void TimelineBuilder::BeginWaitsTogether(TimelineStep& step) {
  const auto first_wait = [](const Operation& operation) {
    return operation.kind == OperationKind::kBatchWait && operation.number == 0;
  };
  int64_t begin_ns = INT64_MIN;
  for (const Operation& operation : step.operations) {
    if (first_wait(operation)) begin_ns = std::max(begin_ns, operation.start_ns);
  }
  for (Operation& operation : step.operations) {
    if (!first_wait(operation)) continue;
    const int64_t end_ns = std::max(begin_ns, operation.end_ns());
    operation.start_ns = begin_ns;
    operation.duration_ns = end_ns - begin_ns;
  }
}

absl::Status TimelineBuilder::KeepOrder(const std::vector<Entry>& entries, TimelineStep& step) {
  std::map<std::pair<int32_t, int64_t>, int32_t> positions;
  // By rank: its wait for the batch.
  std::map<int32_t, int32_t> waits;
  // By rank, stream and id.
  std::map<std::tuple<int32_t, int64_t, int64_t>, int32_t> streams;
  for (size_t i = 0; i < entries.size(); ++i) {
    const int32_t rank = entries[i].operation.rank;
    if (entries[i].id < 0) {
      waits[rank] = static_cast<int32_t>(i);
      continue;
    }
    positions[{rank, entries[i].id}] = static_cast<int32_t>(i);
    streams[{rank, entries[i].stream, entries[i].id}] = static_cast<int32_t>(i);
  }
  step.after.resize(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    for (const int64_t id : entries[i].after) {
      const auto found = positions.find({entries[i].operation.rank, id});
      if (found == positions.end())
        return absl::InvalidArgumentError(absl::StrCat("step ", step.number, ": an operation waits for ", id,
                                                       ", which its rank does not have"));
      step.after[i].push_back(found->second);
    }
  }
  if (streams.empty()) return absl::OkStatus();
  for (auto before = streams.begin(), next = std::next(before); next != streams.end(); ++before, ++next) {
    const bool same_stream = std::get<0>(before->first) == std::get<0>(next->first) &&
                             std::get<1>(before->first) == std::get<1>(next->first);
    if (same_stream) step.after[next->second].push_back(before->second);
  }
  for (const auto& [key, operation] : streams) {
    const auto wait = waits.find(std::get<0>(key));
    if (wait != waits.end() && step.after[operation].empty()) step.after[operation].push_back(wait->second);
  }
  return absl::OkStatus();
}

absl::StatusOr<Timeline> TimelineBuilder::Build() {
  Timeline timeline;
  bool passes = false;
  for (auto& [number, entries] : steps_) {
    PENSTOCK_ASSIGN_OR_RETURN(TimelineStep step, StepOf(number, std::move(entries)));
    passes = passes || std::any_of(step.operations.begin(), step.operations.end(),
                                   [](const Operation& operation) { return IsPassKind(operation.kind); });
    timeline.steps.push_back(std::move(step));
  }
  steps_.clear();
  if (!passes) {
    return absl::InvalidArgumentError(
        "there are no passes: operations called forward-compute and backward-compute (docs/diagnosis.md)");
  }
  timeline.names.resize(name_positions_.size());
  for (const auto& [name, position] : name_positions_) timeline.names[position] = name;
  PENSTOCK_RETURN_IF_ERROR(PlaceRanks(timeline));
  int64_t works = 0;
  for (const TimelineStep& step : timeline.steps) {
    int32_t most = 0;
    for (const Operation& operation : step.operations) most = std::max(most, operation.micro_batch + 1);
    works += int64_t{most} * timeline.replicas;
  }
  if (works > kMostWorks) {
    return absl::InvalidArgumentError(absl::StrCat(
        works, " micro-batches over all steps and replicas; at most ", kMostWorks, ": give fewer steps"));
  }
  return timeline;
}

}  // namespace penstock::core
