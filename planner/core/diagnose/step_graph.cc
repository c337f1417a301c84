#include "planner/core/diagnose/step_graph.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock::core {
namespace {

// Operations of a rank that overlap by more than this share of the shorter one belong together.
constexpr double kTogether = 0.3;
// Of a step: waits shorter than this share of it are not looked into; starts closer than this are one.
constexpr double kShortWait = 1e-3;
constexpr double kSameStart = 2.5e-4;
// Clocks of different ranks never agree so well by chance.
constexpr int64_t kOneMomentNs = 100;
// A barrier explains waits when less than this share of them is left.
constexpr double kUnexplained = 0.5;
// What ended so close before, relative to what was waited, is what was waited for.
constexpr double kJustEnded = 0.02;

// A pass and communication that overlap do not: one of them has an order of its own, or times are not exact.
bool AreTogether(const Operation& one, const Operation& other) {
  if (IsPassKind(one.kind) != IsPassKind(other.kind)) return false;
  const int64_t overlap = std::min(one.end_ns(), other.end_ns()) - std::max(one.start_ns, other.start_ns);
  return static_cast<double>(overlap) >
         kTogether * static_cast<double>(std::min(one.duration_ns, other.duration_ns));
}

// What a pass brings forth for the next stage, or for the one before; its own kind when nothing.
OperationKind SentBy(OperationKind pass) {
  switch (pass) {
    case OperationKind::kForward:
      return OperationKind::kSendForward;
    case OperationKind::kBackward:
    case OperationKind::kBackwardInput:
      return OperationKind::kSendBackward;
    default:
      return pass;
  }
}

bool IsReceive(OperationKind kind) {
  return kind == OperationKind::kReceiveForward || kind == OperationKind::kReceiveBackward;
}

// Operations that one rank runs together.
struct Together {
  std::vector<int32_t> operations;
  int64_t end_ns = 0;
};

// What an operation of a rank follows.
struct Before {
  // The node of its end, when that was, and what it is called (-1: nothing).
  int32_t node = 0;
  int64_t end_ns = 0;
  int32_t name = -1;
};

// What brings a pass what it works on; of a pass that needs nothing but what its rank has, its own kind.
OperationKind ReceivedBy(OperationKind pass) {
  switch (pass) {
    case OperationKind::kForward:
      return OperationKind::kReceiveForward;
    case OperationKind::kBackward:
    case OperationKind::kBackwardInput:
      return OperationKind::kReceiveBackward;
    default:
      return pass;
  }
}

class StepGraphBuilder {
 public:
  StepGraphBuilder(const Timeline& timeline, const Communication& communication, const TimelineStep& step)
      : timeline_(timeline),
        communication_(communication),
        step_(step),
        operations_(step.operations),
        beside_passes_(RunsBesidePasses(timeline, step)) {}

  absl::StatusOr<StepGraph> Build() {
    FindEnds();
    FindMeetings();
    AddMeetingNodes();
    if (step_.after.empty()) {
      FindBatches();
      AddBatchNodes();
      FindBarriers();
      Connect();
    } else {
      ConnectAsKnown();
    }
    if (const absl::Status ordered = made_.graph.Order(); !ordered.ok())
      return absl::InvalidArgumentError(absl::StrCat("step ", step_.number, ": ", ordered.message()));
    return std::move(made_);
  }

 private:
  const Operation& at(int32_t operation) const { return operations_[operation]; }
  bool IsAsynchronous(int32_t operation) const {
    return beside_passes_[operation] ||
           (!IsPassKind(at(operation).kind) && communication_.IsAsynchronous(at(operation).name));
  }

  void FindEnds() {
    if (operations_.empty()) return;
    int64_t last = INT64_MIN;
    first_ns_ = INT64_MAX;
    for (const Operation& operation : operations_) {
      first_ns_ = std::min(first_ns_, operation.start_ns);
      last = std::max(last, operation.end_ns());
    }
    made_.measured_ns = last - first_ns_;
  }

  // By rank; those of asynchronous communication by rank and name.
  void FindBatches() {
    std::vector<int32_t> order(operations_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t one, int32_t other) { return at(one).start_ns < at(other).start_ns; });
    for (const int32_t operation : order) {
      std::vector<Together>& lane =
          lanes_[{at(operation).rank, IsAsynchronous(operation) ? at(operation).name : -1}];
      const bool together = !lane.empty() && !IsAsynchronous(operation) &&
                            std::any_of(lane.back().operations.begin(), lane.back().operations.end(),
                                        [&](int32_t other) { return AreTogether(at(operation), at(other)); });
      if (!together) lane.emplace_back();
      lane.back().operations.push_back(operation);
      lane.back().end_ns = std::max(lane.back().end_ns, at(operation).end_ns());
      ++passes_[{at(operation).rank, at(operation).kind}];
    }
  }

  // Operations of several ranks that are one; the others alone.
  void FindMeetings() {
    meeting_of_.assign(operations_.size(), -1);
    for (const MatchedTransfer& transfer : MatchTransfers(timeline_, step_)) AddTransfer(transfer);
    std::map<int64_t, std::vector<int32_t>> collectives;
    for (size_t i = 0; i < operations_.size(); ++i) {
      const auto operation = static_cast<int32_t>(i);
      if (meeting_of_[i] >= 0) continue;
      const OperationKind kind = at(operation).kind;
      if (IsPassKind(kind) || IsTransferKind(kind) || kind == OperationKind::kWait ||
          kind == OperationKind::kBatchWait)
        AddMeeting({operation});
      else
        collectives[communication_.KeyOf(timeline_, at(operation))].push_back(operation);
    }
    for (auto& [key, members] : collectives) AddMeeting(std::move(members));
  }

  // A sender that had ended before the receiver came has not waited for it.
  void AddTransfer(const MatchedTransfer& transfer) {
    if (at(transfer.sender).end_ns() > at(transfer.receiver).start_ns) {
      AddMeeting({transfer.sender, transfer.receiver});
      made_.activities.back().receiver = transfer.receiver;
      return;
    }
    AddMeeting({transfer.sender});
    made_.activities.back().receiver = transfer.receiver;
    AddMeeting({transfer.receiver});
    sent_before_.push_back(transfer);
  }

  void AddMeeting(std::vector<int32_t> members) {
    int64_t last_start = INT64_MIN, first_end = INT64_MAX;
    for (const int32_t member : members) {
      meeting_of_[member] = static_cast<int32_t>(meetings_.size());
      last_start = std::max(last_start, at(member).start_ns);
      first_end = std::min(first_end, at(member).end_ns());
    }
    made_.activities.push_back({.operation = members.front()});
    if (members.size() > 1 && at(members.front()).kind == OperationKind::kCollective)
      made_.activities.back().members = members;
    const bool only_waits = at(members.front()).kind == OperationKind::kWait;
    made_.durations_ns.push_back(only_waits ? 0 : std::max<int64_t>(0, first_end - last_start));
    first_ends_.push_back(std::max(first_end, last_start));
    meetings_.push_back(std::move(members));
  }

  // A node for the beginning, for each operation's arrival and each meeting.
  void AddMeetingNodes() {
    begin_ = made_.graph.Add({}, -1);
    arrivals_.resize(operations_.size());
    before_.resize(operations_.size());
    for (size_t i = 0; i < operations_.size(); ++i)
      arrivals_[i] = made_.graph.Add({begin_}, AddHostActivity(i));
    for (size_t i = 0; i < meetings_.size(); ++i) {
      std::vector<int32_t> arrived;
      for (const int32_t member : meetings_[i]) arrived.push_back(arrivals_[member]);
      met_.push_back(made_.graph.Add(arrived, static_cast<int32_t>(i)));
    }
    for (const MatchedTransfer& transfer : sent_before_)
      made_.graph.WaitFor(met_[meeting_of_[transfer.receiver]], met_[meeting_of_[transfer.sender]]);
  }

  // And for the end of each batch.
  void AddBatchNodes() {
    for (auto& [lane, batches] : lanes_) {
      Before before = {.node = begin_, .end_ns = first_ns_};
      for (const Together& batch : batches) {
        std::vector<int32_t> ends;
        for (const int32_t operation : batch.operations) {
          before_[operation] = before;
          ends.push_back(EndOf(operation));
        }
        before = {.node = made_.graph.Add(ends, -1),
                  .end_ns = batch.end_ns,
                  .name = at(batch.operations.back()).name};
        ends_[lane].push_back(before);
        for (const int32_t operation : batch.operations) AddProducer(at(operation), before);
      }
    }
  }

  // A rank may have more to do after what several do together.
  int32_t EndOf(int32_t operation) {
    const int32_t met = met_[meeting_of_[operation]];
    const int64_t own_ns = at(operation).end_ns() - first_ends_[meeting_of_[operation]];
    if (own_ns <= 0 || IsTransferKind(at(operation).kind)) return met;
    made_.activities.push_back({.host = true, .operation = operation, .name_before = at(operation).name});
    made_.durations_ns.push_back(own_ns);
    return made_.graph.Add({met}, static_cast<int32_t>(made_.activities.size() - 1));
  }

  void AddProducer(const Operation& pass, const Before& end) {
    const OperationKind sent = SentBy(pass.kind);
    if (sent != pass.kind) producers_[{pass.rank, sent, pass.micro_batch, pass.model_stage}] = end;
  }

  int32_t AddHostActivity(size_t operation) {
    made_.activities.push_back({.host = true, .operation = static_cast<int32_t>(operation)});
    made_.durations_ns.push_back(0);
    return static_cast<int32_t>(made_.activities.size() - 1);
  }
  int64_t& HostTime(int32_t operation) { return made_.durations_ns[meetings_.size() + operation]; }
  int64_t WaitOf(int32_t operation) const {
    return std::max<int64_t>(0, at(operation).start_ns - before_[operation].end_ns);
  }

  // Operations that ranks began at once although they had ended the one before at different times.
  void FindBarriers() {
    std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> same;
    for (size_t i = 0; i < operations_.size(); ++i) {
      const Operation& operation = operations_[i];
      if (operation.kind == OperationKind::kCollective || operation.kind == OperationKind::kLocal)
        same[{operation.name, operation.number}].push_back(static_cast<int32_t>(i));
    }
    released_by_.assign(operations_.size(), -1);
    for (auto& [key, all] : same) {
      std::sort(all.begin(), all.end(),
                [&](int32_t one, int32_t other) { return at(one).start_ns < at(other).start_ns; });
      const auto close = static_cast<int64_t>(kSameStart * static_cast<double>(made_.measured_ns));
      for (size_t begin = 0; begin < all.size();) {
        size_t end = begin + 1;
        while (end < all.size() && at(all[end]).start_ns - at(all[end - 1]).start_ns <= close) ++end;
        FindBarrier(all, {all.begin() + static_cast<std::ptrdiff_t>(begin),
                          all.begin() + static_cast<ptrdiff_t>(end)});
        begin = end;
      }
    }
  }

  // `began`: at once. The last to come is among all that run the operation: it may have waited for more.
  void FindBarrier(const std::vector<int32_t>& all, const std::vector<int32_t>& began) {
    int64_t waited = 0;
    for (const int32_t operation : began) waited += WaitOf(operation);
    if (static_cast<double>(waited) < kShortWait * static_cast<double>(made_.measured_ns)) return;
    int32_t last = -1;
    for (const int32_t operation : all) {
      if (before_[operation].end_ns > at(began.front()).start_ns) continue;
      if (last < 0 || before_[operation].end_ns > before_[last].end_ns) last = operation;
    }
    if (last < 0) return;
    int64_t left = 0;
    for (const int32_t operation : began)
      left += std::max<int64_t>(0, at(operation).start_ns - before_[last].end_ns);
    if (static_cast<double>(left) > kUnexplained * static_cast<double>(waited)) return;
    for (const int32_t operation : began) released_by_[operation] = last;
  }

  void Connect() {
    for (size_t i = 0; i < operations_.size(); ++i) {
      const auto operation = static_cast<int32_t>(i);
      Follow(operation, before_[operation]);
      if (released_by_[operation] >= 0) Follow(operation, before_[released_by_[operation]]);
      if (!IsAsynchronous(operation))
        FollowAsynchronous(operation);
      else if (!IsReceive(at(operation).kind))
        FollowSerial(operation);
      made_.activities[meetings_.size() + i].name_before = before_[operation].name;
      if (IsAsynchronous(operation)) FollowWhatHasJustEnded(operation);
      const bool only_awaits = IsAsynchronous(operation) && IsReceive(at(operation).kind);
      HostTime(operation) = only_awaits ? 0 : std::max<int64_t>(0, at(operation).start_ns - latest_ns_);
      latest_ns_ = INT64_MIN;
    }
  }

  // What is left of the time before an operation that only waits is no time of the host's.
  void ConnectAsKnown() {
    std::vector<int32_t> ends;
    for (size_t i = 0; i < operations_.size(); ++i) ends.push_back(EndOf(static_cast<int32_t>(i)));
    const auto end_of = [&](int32_t operation) {
      return Before{.node = ends[operation], .end_ns = at(operation).end_ns(), .name = at(operation).name};
    };
    for (size_t i = 0; i < operations_.size(); ++i) {
      before_[i] = {.node = begin_, .end_ns = first_ns_};
      for (const int32_t before : step_.after[i]) {
        if (at(before).end_ns() >= before_[i].end_ns) before_[i] = end_of(before);
      }
    }
    FindBarriers();
    for (size_t i = 0; i < operations_.size(); ++i) {
      const auto operation = static_cast<int32_t>(i);
      latest_ns_ = first_ns_;
      for (const int32_t before : step_.after[i]) Follow(operation, end_of(before));
      if (released_by_[operation] >= 0) Follow(operation, before_[released_by_[operation]]);
      const bool only_waits = at(operation).kind == OperationKind::kWait || IsReceive(at(operation).kind);
      made_.activities[meetings_.size() + i].name_before = before_[operation].name;
      HostTime(operation) = only_waits ? 0 : std::max<int64_t>(0, at(operation).start_ns - latest_ns_);
    }
    for (const std::vector<int32_t>& meeting : meetings_) ForgetWaitsForTheLast(meeting);
  }

  // Where all say that they began when the last of them had come (simulated ranks do), the others waited for
  // it before, and no host did.
  void ForgetWaitsForTheLast(const std::vector<int32_t>& meeting) {
    if (meeting.size() < 2) return;
    const auto start = [&](int32_t operation) { return at(operation).start_ns; };
    const auto [first, last] = std::ranges::minmax(meeting, {}, start);
    if (start(last) - start(first) > kOneMomentNs) return;
    int64_t least = INT64_MAX;
    for (const int32_t operation : meeting) least = std::min(least, HostTime(operation));
    for (const int32_t operation : meeting) HostTime(operation) = least;
  }

  void Follow(int32_t operation, const Before& before) {
    made_.graph.WaitFor(arrivals_[operation], before.node);
    latest_ns_ = std::max(latest_ns_, before.end_ns);
  }

  // Of a lane: the last that had ended when the operation began.
  const Before* LastBefore(const std::pair<int32_t, int32_t>& lane, int64_t start_ns) const {
    const auto found = ends_.find(lane);
    if (found == ends_.end()) return nullptr;
    const std::vector<Before>& ends = found->second;
    auto after = std::upper_bound(ends.begin(), ends.end(), start_ns,
                                  [](int64_t time, const Before& before) { return time < before.end_ns; });
    return after == ends.begin() ? nullptr : &*std::prev(after);
  }

  // What is sent or reduced beside passes is of the pass of its micro-batch, or the one before it.
  void FollowSerial(int32_t operation) {
    const Operation& sent = at(operation);
    const auto producer = producers_.find({sent.rank, sent.kind, sent.micro_batch, sent.model_stage});
    if (producer != producers_.end()) return Follow(operation, producer->second);
    const Before* const before = LastBefore({sent.rank, -1}, sent.start_ns);
    if (before != nullptr) Follow(operation, *before);
  }

  // Communication that takes turns with another name on its link begins when that ends.
  void FollowWhatHasJustEnded(int32_t operation) {
    const Operation& waiting = at(operation);
    const int64_t waited = waiting.start_ns - latest_ns_;
    const Before* last = nullptr;
    for (auto lane = ends_.lower_bound({waiting.rank, 0});
         lane != ends_.end() && lane->first.first == waiting.rank; ++lane) {
      const Before* const before = LastBefore(lane->first, waiting.start_ns);
      if (before != nullptr && (last == nullptr || before->end_ns > last->end_ns)) last = before;
    }
    if (last == nullptr || last->end_ns <= latest_ns_) return;
    const auto close = std::max(communication_.clock_noise_ns(),
                                static_cast<int64_t>(kJustEnded * static_cast<double>(waited)));
    if (waiting.start_ns - last->end_ns <= close) Follow(operation, *last);
  }

  // A pass waits for what it receives; what is no pass for all that had ended.
  void FollowAsynchronous(int32_t operation) {
    const Operation& waiting = at(operation);
    for (auto lane = ends_.lower_bound({waiting.rank, 0});
         lane != ends_.end() && lane->first.first == waiting.rank; ++lane) {
      const Operation& first = at(lanes_.at(lane->first).front().operations.front());
      if (!IsPassKind(waiting.kind)) {
        const Before* const before = LastBefore(lane->first, waiting.start_ns);
        if (before != nullptr) Follow(operation, *before);
      } else if (ReceivedBy(waiting.kind) == first.kind) {
        if (const Before* const received = ReceiptFor(waiting, lane->first); received != nullptr)
          Follow(operation, *received);
      }
    }
  }

  // By micro-batch where receipts say theirs; otherwise the n-th, if there is one for each pass.
  const Before* ReceiptFor(const Operation& pass, const std::pair<int32_t, int32_t>& lane) const {
    const std::vector<Together>& receipts = lanes_.at(lane);
    const std::vector<Before>& ends = ends_.at(lane);
    if (at(receipts.front().operations.front()).micro_batch < 0) {
      const bool one_each = receipts.size() == passes_.at({pass.rank, pass.kind});
      return one_each ? &ends[pass.number] : nullptr;
    }
    for (size_t i = 0; i < receipts.size(); ++i) {
      const Operation& receipt = at(receipts[i].operations.front());
      const bool same_part = receipt.model_stage < 0 || receipt.model_stage == pass.model_stage;
      if (receipt.micro_batch == pass.micro_batch && same_part) return &ends[i];
    }
    return nullptr;
  }

  const Timeline& timeline_;
  const Communication& communication_;
  const TimelineStep& step_;
  const std::vector<Operation>& operations_;
  const std::vector<bool> beside_passes_;
  StepGraph made_;
  int64_t first_ns_ = 0;
  int64_t latest_ns_ = INT64_MIN;
  int32_t begin_ = 0;
  // By rank and -1, or a name that is asynchronous.
  std::map<std::pair<int32_t, int32_t>, std::vector<Together>> lanes_;
  std::map<std::pair<int32_t, int32_t>, std::vector<Before>> ends_;
  // By rank, kind of what is sent, micro-batch and model stage: the end of the pass.
  std::map<std::tuple<int32_t, OperationKind, int32_t, int32_t>, Before> producers_;
  // By rank and kind: how many.
  std::map<std::pair<int32_t, OperationKind>, size_t> passes_;
  std::vector<std::vector<int32_t>> meetings_;
  std::vector<int64_t> first_ends_;
  std::vector<MatchedTransfer> sent_before_;
  // By meeting: its node.
  std::vector<int32_t> met_;
  // By operation.
  std::vector<int32_t> meeting_of_;
  std::vector<int32_t> arrivals_;
  std::vector<Before> before_;
  std::vector<int32_t> released_by_;
};

}  // namespace

absl::StatusOr<StepGraph> GraphOfStep(const Timeline& timeline, const Communication& communication,
                                      const TimelineStep& step) {
  return StepGraphBuilder(timeline, communication, step).Build();
}

}  // namespace penstock::core
