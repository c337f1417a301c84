#include "planner/core/diagnose/step_graph.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/core/diagnose/step_barriers.h"
#include "planner/core/diagnose/step_lanes.h"
#include "planner/core/diagnose/step_meetings.h"

namespace penstock::core {
namespace {

// Clocks of different ranks never agree so well by chance.
constexpr int64_t kOneMomentNs = 100;
// What ended so close before, relative to what was waited, is what was waited for.
constexpr double kJustEnded = 0.02;

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
      : communication_(communication),
        step_(step),
        operations_(step.operations),
        meetings_(MeetingsOf(timeline, communication, step)),
        lanes_(timeline, communication, step) {}

  absl::StatusOr<StepGraph> Build() {
    FindEnds();
    AddMeetings();
    if (step_.after.empty()) {
      AddLanes();
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
  bool IsAsynchronous(int32_t operation) const { return lanes_.IsAsynchronous(operation); }
  const Meeting& MeetingOf(int32_t operation) const {
    return meetings_.meetings[meetings_.meeting_of[operation]];
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

  // A node for the beginning, for each operation's arrival and each meeting.
  void AddMeetings() {
    for (const Meeting& meeting : meetings_.meetings) AddActivityOf(meeting);
    begin_ = made_.graph.Add({}, -1);
    arrivals_.resize(operations_.size());
    before_.resize(operations_.size());
    for (size_t i = 0; i < operations_.size(); ++i)
      arrivals_[i] = made_.graph.Add({begin_}, AddHostActivity(i));
    for (size_t i = 0; i < meetings_.meetings.size(); ++i) {
      std::vector<int32_t> arrived;
      for (const int32_t operation : meetings_.meetings[i].operations)
        arrived.push_back(arrivals_[operation]);
      met_.push_back(made_.graph.Add(arrived, static_cast<int32_t>(i)));
    }
    for (const MatchedTransfer& transfer : meetings_.sent_before)
      made_.graph.WaitFor(MetIn(transfer.receiver), MetIn(transfer.sender));
  }

  void AddActivityOf(const Meeting& meeting) {
    Activity activity = {.operation = meeting.operations.front(), .receiver = meeting.receiver};
    const bool is_collective = at(activity.operation).kind == OperationKind::kCollective;
    if (is_collective && meeting.operations.size() > 1) activity.members = meeting.operations;
    made_.activities.push_back(std::move(activity));
    made_.durations_ns.push_back(meeting.duration_ns);
  }

  int32_t MetIn(int32_t operation) const { return met_[meetings_.meeting_of[operation]]; }

  // And for the end of what ranks run together.
  void AddLanes() {
    for (const auto& [lane, all_together] : lanes_.lanes()) {
      Before before = {.node = begin_, .end_ns = first_ns_};
      for (const Together& together : all_together) {
        std::vector<int32_t> ends;
        for (const int32_t operation : together.operations) {
          before_[operation] = before;
          ends.push_back(EndOf(operation));
        }
        before = {.node = made_.graph.Add(ends, -1),
                  .end_ns = together.end_ns,
                  .name = at(together.operations.back()).name};
        ends_[lane].push_back(before);
        for (const int32_t operation : together.operations) AddProducer(at(operation), before);
      }
    }
  }

  // A rank may have more to do after what several do together.
  int32_t EndOf(int32_t operation) {
    const int32_t met = MetIn(operation);
    const int64_t own_ns = at(operation).end_ns() - MeetingOf(operation).first_end_ns;
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
  int64_t& HostTime(int32_t operation) { return made_.durations_ns[meetings_.meetings.size() + operation]; }

  void FindBarriers() {
    std::vector<int64_t> ready_ns;
    for (const Before& before : before_) ready_ns.push_back(before.end_ns);
    released_by_ = ReleasedBy(step_, ready_ns, made_.measured_ns);
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
      made_.activities[meetings_.meetings.size() + i].name_before = before_[operation].name;
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
      made_.activities[meetings_.meetings.size() + i].name_before = before_[operation].name;
      HostTime(operation) = only_waits ? 0 : std::max<int64_t>(0, at(operation).start_ns - latest_ns_);
    }
    for (const Meeting& meeting : meetings_.meetings) ForgetWaitsForTheLast(meeting.operations);
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
  const Before* LastBefore(const Lane& lane, int64_t start_ns) const {
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
      const Operation& first = at(lanes_.lanes().at(lane->first).front().operations.front());
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
  const Before* ReceiptFor(const Operation& pass, const Lane& lane) const {
    const std::vector<Together>& receipts = lanes_.lanes().at(lane);
    const std::vector<Before>& ends = ends_.at(lane);
    if (at(receipts.front().operations.front()).micro_batch < 0) {
      const bool one_each = receipts.size() == lanes_.CountOf(pass.rank, pass.kind);
      return one_each ? &ends[pass.number] : nullptr;
    }
    for (size_t i = 0; i < receipts.size(); ++i) {
      const Operation& receipt = at(receipts[i].operations.front());
      const bool same_part = receipt.model_stage < 0 || receipt.model_stage == pass.model_stage;
      if (receipt.micro_batch == pass.micro_batch && same_part) return &ends[i];
    }
    return nullptr;
  }

  const Communication& communication_;
  const TimelineStep& step_;
  const std::vector<Operation>& operations_;
  const StepMeetings meetings_;
  const StepLanes lanes_;
  StepGraph made_;
  int64_t first_ns_ = 0;
  int64_t latest_ns_ = INT64_MIN;
  int32_t begin_ = 0;
  std::map<Lane, std::vector<Before>> ends_;
  // By rank, kind of what is sent, micro-batch and model stage: the end of the pass.
  std::map<std::tuple<int32_t, OperationKind, int32_t, int32_t>, Before> producers_;
  // By meeting: its node.
  std::vector<int32_t> met_;
  // By operation.
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
