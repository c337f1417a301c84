#include "worker/device/simulated/simulated_rank.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "worker/comm/groups.h"
#include "worker/device/simulated/memory_account.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// A message: the sender's ready time, then what must be equal at both ends.
constexpr size_t kReady = 0;
constexpr size_t kHeader = 5;
// A message of data is this much smaller than the tensor that it stands for.
constexpr uint64_t kScale = 4096;
// The answer to a message of data has its sequence number, and this.
constexpr uint32_t kAnswerTag = uint32_t{1} << 29;
// Beyond those of collectives.
constexpr uint32_t kPassTag = (uint32_t{1} << 30) + 2;

// By the instruction's own id, so that whoever waits learns what became of it.
class SimulatedTransfer : public PendingTransfer {
 public:
  SimulatedTransfer(Timeline& timeline, uint32_t id) : timeline_(timeline), id_(id) {}
  absl::Status Wait() override { return timeline_.Await(id_); }

 private:
  Timeline& timeline_;
  const uint32_t id_;
};

at::Tensor Integers(int64_t count) { return at::zeros({count}, at::kLong); }

class PlaceAlone : public StageGroup {
 public:
  explicit PlaceAlone(const GroupPlace& place) : place_(place) {}
  GroupPlace place() const override { return place_; }
  at::Tensor GatherRows(const at::Tensor& own, const ListedRows&) override { return own; }
  at::Tensor SumRows(const at::Tensor& partial, const ListedRows&) override { return partial; }
  void SumOverTensorRanks(at::Tensor&) override {}
  void MaxOverTensorRanks(at::Tensor&) override {}
  at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>&,
                          const std::vector<int64_t>&) override {
    return rows;
  }
  std::unique_ptr<PendingRows> StartExpertRows(const at::Tensor& rows, const std::vector<int64_t>&,
                                               const std::vector<int64_t>&) override {
    return std::make_unique<ArrivedRows>(rows);
  }
  at::Tensor ExchangeExpertCounts(const at::Tensor& counts) override { return counts; }
  absl::Status status() const override { return absl::OkStatus(); }

 private:
  const GroupPlace place_;
};

std::unique_ptr<StageGroup> StageGroupAt(const GroupPlace& place) {
  return place.ranks() > 1 ? std::make_unique<PlaceAlone>(place) : nullptr;
}

// What ranks of a stage group tell each other of a pass.
enum PassField : size_t { kPassReady, kPassDuration, kPassIteration, kPassId, kPassFields };

}  // namespace

SimulatedRank::SimulatedRank(SimulatedRankParts parts)
    : parts_(std::move(parts)),
      durations_(parts_.options, parts_.rank),
      pace_(parts_.clock.get(), parts_.options.time_scale) {
  for (size_t i = 0; i < parts_.places.size(); ++i) stage_groups_[i] = StageGroupAt(parts_.places[i]);
}

// Nothing is joined: passes exchange times alone, over the network that connects all ranks.
absl::Status SimulatedRank::JoinPasses(size_t strategy, const PassGroups& passes,
                                       const std::vector<std::vector<uint32_t>>& /*links*/) {
  stage_groups_[strategy] = StageGroupAt(passes.place);
  return absl::OkStatus();
}

// Threads may wait for peers that never come.
SimulatedRank::~SimulatedRank() { Abort("the rank has ended"); }

void SimulatedRank::Abort(const std::string& reason) {
  const absl::Status why = absl::CancelledError(absl::StrCat("communication was aborted: ", reason));
  timeline_.Cancel(why);
  pace_.Cancel(why);
  parts_.network->Abort(reason);
}

absl::Status SimulatedRank::AgreeOnOrigin() {
  int64_t origin = absl::GetCurrentTimeNanos();
  for (const std::vector<uint32_t>& group : parts_.groups) {
    PENSTOCK_ASSIGN_OR_RETURN(origin, MeetGroup(origin, {}, group));
  }
  origin_unix_ns_ = origin;
  return absl::OkStatus();
}

absl::Status SimulatedRank::StartIteration(const Program& program) {
  if (origin_unix_ns_ == 0) PENSTOCK_RETURN_IF_ERROR(AgreeOnOrigin());
  program_ = &program;
  exchanges_ns_.clear();
  timeline_.Start(program, now_ns_);
  pace_.Begin(now_ns_);
  return absl::OkStatus();
}

absl::Status SimulatedRank::Begin(const Instruction& instruction) {
  current_ = &instruction;
  if (instruction.stream != Stream::kCompute) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(start_ns_, timeline_.Ready(instruction.id));
  start_ns_ += durations_.HostNs(instruction);
  duration_ns_ = durations_.Of(*program_, instruction);
  if (!instruction.joint) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(MeetStageGroup(instruction));
  exchanges_ns_[instruction.id] = duration_ns_ - durations_.ComputingOf(*program_, instruction);
  return absl::OkStatus();
}

// In rounds, each with a rank twice as far away: what is known to 1, 2, 4, ... ranks (Hensgen, Finkel and
// Manber, "Two algorithms for barrier synchronization", 1988). A pair of ranks meets once in a pass.
absl::Status SimulatedRank::MeetStageGroup(const Instruction& pass) {
  const RankGroup& group = program_->groups[pass.group];
  const std::optional<int> position = PositionIn(group, parts_.rank);
  if (!position.has_value()) return absl::InternalError("a stage group without this rank");
  at::Tensor known;
  at::Tensor heard;
  PENSTOCK_RETURN_IF_ERROR(RunTorch("the times of a stage group", [&] {
    known = Integers(kPassFields);
    heard = Integers(kPassFields);
  }));
  int64_t* const own = known.data_ptr<int64_t>();
  const int64_t* const other = heard.const_data_ptr<int64_t>();
  own[kPassReady] = start_ns_;
  own[kPassDuration] = duration_ns_;
  own[kPassIteration] = static_cast<int64_t>(program_->iteration);
  own[kPassId] = pass.id;
  const size_t size = group.size();
  for (size_t distance = 1; distance < size; distance *= 2) {
    const auto self = static_cast<size_t>(*position);
    const uint32_t from = group[(self + size - distance) % size];
    PENSTOCK_ASSIGN_OR_RETURN(const auto receive, parts_.network->Receive(heard, from, kPassTag));
    PENSTOCK_ASSIGN_OR_RETURN(const auto send,
                              parts_.network->Send(known, group[(self + distance) % size], kPassTag));
    PENSTOCK_RETURN_IF_ERROR(receive->Wait());
    PENSTOCK_RETURN_IF_ERROR(send->Wait());
    if (own[kPassIteration] != other[kPassIteration] || own[kPassId] != other[kPassId]) {
      return absl::InternalError(absl::StrCat("rank ", from, " is at pass ", other[kPassId], " of iteration ",
                                              other[kPassIteration], ", this rank at pass ", pass.id,
                                              " of iteration ", program_->iteration));
    }
    for (const PassField field : {kPassReady, kPassDuration}) own[field] = std::max(own[field], other[field]);
  }
  start_ns_ = own[kPassReady];
  duration_ns_ = own[kPassDuration];
  return absl::OkStatus();
}

absl::Status SimulatedRank::End(const Instruction& instruction) {
  current_ = nullptr;
  if (instruction.stream != Stream::kCompute) return absl::OkStatus();
  const int64_t end_ns = start_ns_ + duration_ns_;
  timeline_.End(instruction.id, start_ns_, end_ns);
  return pace_.WaitUntil(end_ns);
}

absl::StatusOr<IterationTimes> SimulatedRank::Finish() {
  IterationTimes times = {.started_unix_ns = origin_unix_ns_ + timeline_.start_ns()};
  for (const Instruction& instruction : program_->instructions) {
    PENSTOCK_RETURN_IF_ERROR(timeline_.Await(instruction.id));
    const Timeline::Span span = *timeline_.At(instruction.id);
    times.instructions.push_back({.id = instruction.id,
                                  .start_ns = span.start_ns - timeline_.start_ns(),
                                  .duration_ns = span.end_ns - span.start_ns});
    if (const auto found = exchanges_ns_.find(instruction.id); found != exchanges_ns_.end())
      times.instructions.back().exchange_ns = found->second;
  }
  now_ns_ = timeline_.end_ns();
  times.duration_ns = now_ns_ - timeline_.start_ns();
  times.peak_memory_bytes = PeakOfAccount(*program_, times.instructions);
  program_ = nullptr;
  return times;
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> SimulatedRank::Send(const at::Tensor&, uint32_t peer,
                                                                     uint32_t sequence) {
  return StartTransfer(peer, sequence);
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> SimulatedRank::Receive(const at::Tensor&, uint32_t peer,
                                                                        uint32_t sequence) {
  return StartTransfer(peer, sequence);
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> SimulatedRank::StartTransfer(uint32_t peer,
                                                                              uint32_t sequence) {
  if (current_ == nullptr || current_->stream == Stream::kCompute || sequence >= kAnswerTag) {
    return absl::InvalidArgumentError(
        absl::StrCat("a transfer with rank ", peer, " outside the instruction of one"));
  }
  const uint32_t id = current_->id;
  Meeting meeting = {.id = id,
                     .sends = current_->op == Op::kSend,
                     .iteration = program_->iteration,
                     .transfer = program_->transfers[current_->transfer],
                     .duration_ns = durations_.Of(*program_, *current_)};
  ThreadOf(current_->stream).Add([this, meeting = std::move(meeting)] {
    Settle(meeting.id, Meet(meeting), meeting.duration_ns);
  });
  return std::make_unique<SimulatedTransfer>(timeline_, id);
}

void SimulatedRank::Settle(uint32_t id, const absl::StatusOr<int64_t>& start_ns, int64_t duration_ns) {
  if (start_ns.ok()) return timeline_.End(id, *start_ns, *start_ns + duration_ns);
  timeline_.Fail(id, start_ns.status());
}

absl::StatusOr<int64_t> SimulatedRank::Meet(const Meeting& meeting) {
  const Transfer& transfer = meeting.transfer;
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t ready_ns, timeline_.Ready(meeting.id));
  const std::array<int64_t, kHeader> header = {ready_ns, static_cast<int64_t>(meeting.iteration),
                                               transfer.sequence, static_cast<int64_t>(transfer.kind),
                                               static_cast<int64_t>(transfer.bytes)};
  at::Tensor data;
  at::Tensor answer;
  PENSTOCK_RETURN_IF_ERROR(RunTorch("a message", [&] {
    data = Integers(static_cast<int64_t>(kHeader + transfer.bytes / kScale / sizeof(int64_t)));
    answer = Integers(kHeader);
    std::ranges::copy(header, (meeting.sends ? data : answer).data_ptr<int64_t>());
  }));
  Communicator& network = *parts_.network;
  const uint32_t tag = transfer.sequence;
  const auto exchange = [&](const at::Tensor& sent, uint32_t sent_tag, const at::Tensor& received,
                            uint32_t received_tag) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(auto receive, network.Receive(received, transfer.peer, received_tag));
    PENSTOCK_ASSIGN_OR_RETURN(auto send, network.Send(sent, transfer.peer, sent_tag));
    PENSTOCK_RETURN_IF_ERROR(receive->Wait());
    return send->Wait();
  };
  const absl::Status status = meeting.sends ? exchange(data, tag, answer, tag + kAnswerTag)
                                            : exchange(answer, tag + kAnswerTag, data, tag);
  PENSTOCK_RETURN_IF_ERROR(status);
  const int64_t* peer = (meeting.sends ? answer : data).data_ptr<int64_t>();
  if (!std::equal(header.begin() + kReady + 1, header.end(), peer + kReady + 1)) {
    return absl::InternalError(absl::StrCat("rank ", transfer.peer, " is at transfer ", peer[2],
                                            " of iteration ", peer[1], " (", peer[4],
                                            " bytes), this rank at transfer ", tag, " of iteration ",
                                            meeting.iteration, " (", transfer.bytes, " bytes)"));
  }
  return std::max(ready_ns, peer[kReady]);
}

absl::StatusOr<int64_t> SimulatedRank::MeetGroup(int64_t ready_ns, std::vector<at::Tensor> tensors,
                                                 const std::vector<uint32_t>& group) {
  const std::optional<int> position = PositionIn(group, parts_.rank);
  if (!position.has_value()) return absl::InternalError("a group without this rank");
  at::Tensor ready;
  PENSTOCK_RETURN_IF_ERROR(RunTorch("the ready times of a group", [&] {
    ready = Integers(static_cast<int64_t>(group.size()));
    ready.data_ptr<int64_t>()[*position] = ready_ns;
  }));
  tensors.push_back(ready);
  PENSTOCK_RETURN_IF_ERROR(parts_.network->AllReduceSum(tensors, group));
  const int64_t* times = ready.data_ptr<int64_t>();
  return *std::max_element(times, times + group.size());
}

absl::Status SimulatedRank::AllReduceSum(std::vector<at::Tensor>& tensors,
                                         const std::vector<uint32_t>& group) {
  if (current_ == nullptr) return parts_.network->AllReduceSum(tensors, group);
  PENSTOCK_RETURN_IF_ERROR(CheckOnCompute("an all-reduce that blocks"));
  PENSTOCK_ASSIGN_OR_RETURN(start_ns_, MeetGroup(start_ns_, tensors, group));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> SimulatedRank::StartCollective(
    std::function<absl::StatusOr<int64_t>(int64_t ready_ns)> meet) {
  if (current_ == nullptr || current_->stream != Stream::kCollective) {
    return absl::InvalidArgumentError("a collective is started beside the collective stream");
  }
  const uint32_t id = current_->id;
  const int64_t duration_ns = durations_.Of(*program_, *current_);
  ThreadOf(current_->stream).Add([this, id, duration_ns, meet = std::move(meet)] {
    absl::StatusOr<int64_t> start_ns = timeline_.Ready(id);
    if (start_ns.ok()) start_ns = meet(*start_ns);
    Settle(id, start_ns, duration_ns);
  });
  return std::make_unique<SimulatedTransfer>(timeline_, id);
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> SimulatedRank::StartAllReduceSum(
    const std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) {
  return StartCollective(
      [this, tensors, group](int64_t ready_ns) { return MeetGroup(ready_ns, tensors, group); });
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> SimulatedRank::StartAllToAll(
    const std::vector<at::Tensor>& sent, const std::vector<at::Tensor>& received,
    const std::vector<uint32_t>& group) {
  return StartCollective([this, sent, received, group](int64_t ready_ns) -> absl::StatusOr<int64_t> {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t start_ns, MeetGroup(ready_ns, {}, group));
    PENSTOCK_ASSIGN_OR_RETURN(const auto exchange, parts_.network->StartAllToAll(sent, received, group));
    PENSTOCK_RETURN_IF_ERROR(exchange->Wait());
    return start_ns;
  });
}

// The sum of all shards is one of this rank's too.
absl::StatusOr<std::unique_ptr<PendingTransfer>> SimulatedRank::StartReduceScatterSum(
    const std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) {
  return StartAllReduceSum(tensors, group);
}

absl::Status SimulatedRank::AllGather(const std::vector<at::Tensor>& tensors,
                                      const std::vector<uint32_t>& group) {
  if (current_ != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(CheckOnCompute("an all-gather"));
    PENSTOCK_ASSIGN_OR_RETURN(start_ns_, MeetGroup(start_ns_, {}, group));
  }
  return parts_.network->AllGather(tensors, group);
}

absl::Status SimulatedRank::CheckOnCompute(absl::string_view what) const {
  if (current_->stream == Stream::kCompute) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " beside the compute stream"));
}

}  // namespace penstock::worker
