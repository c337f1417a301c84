#include "worker/device/simulated/simulated_rank.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "worker/comm/groups.h"
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

}  // namespace

SimulatedRank::SimulatedRank(SimulatedRankParts parts)
    : parts_(std::move(parts)),
      durations_(parts_.options, parts_.rank),
      pace_(parts_.clock.get(), parts_.options.time_scale) {}

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
  timeline_.Start(program, now_ns_);
  pace_.Begin(now_ns_);
  return absl::OkStatus();
}

absl::Status SimulatedRank::Begin(const Instruction& instruction) {
  current_ = &instruction;
  if (instruction.stream != Stream::kCompute) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(start_ns_, timeline_.Ready(instruction.id));
  return absl::OkStatus();
}

absl::Status SimulatedRank::End(const Instruction& instruction) {
  current_ = nullptr;
  if (instruction.stream != Stream::kCompute) return absl::OkStatus();
  const int64_t end_ns = start_ns_ + durations_.Of(*program_, instruction);
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
  }
  now_ns_ = timeline_.end_ns();
  times.duration_ns = now_ns_ - timeline_.start_ns();
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

absl::StatusOr<std::unique_ptr<PendingTransfer>> SimulatedRank::StartAllReduceSum(
    const std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) {
  if (current_ == nullptr || current_->stream != Stream::kCollective) {
    return absl::InvalidArgumentError("a reduction is started beside the collective stream");
  }
  const uint32_t id = current_->id;
  const int64_t duration_ns = durations_.Of(*program_, *current_);
  ThreadOf(current_->stream).Add([this, id, duration_ns, tensors, group] {
    absl::StatusOr<int64_t> start_ns = timeline_.Ready(id);
    if (start_ns.ok()) start_ns = MeetGroup(*start_ns, tensors, group);
    Settle(id, start_ns, duration_ns);
  });
  return std::make_unique<SimulatedTransfer>(timeline_, id);
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
