#include "planner/core/replay/program_set_of_plan.h"

#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::core {
namespace {

std::optional<Op> OpOf(v1::Op op) {
  switch (op) {
    case v1::OP_LOAD:
      return Op::kLoad;
    case v1::OP_FORWARD:
      return Op::kForward;
    case v1::OP_BACKWARD:
      return Op::kBackward;
    case v1::OP_BACKWARD_INPUT:
      return Op::kBackwardInput;
    case v1::OP_BACKWARD_WEIGHT:
      return Op::kBackwardWeight;
    case v1::OP_SEND:
      return Op::kSend;
    case v1::OP_RECV:
      return Op::kRecv;
    case v1::OP_WAIT:
      return Op::kWait;
    case v1::OP_FREE:
      return Op::kFree;
    case v1::OP_REDUCE_GRADIENTS:
      return Op::kReduceGradients;
    case v1::OP_RESHARD:
      return Op::kReshard;
    case v1::OP_OPTIMIZER_STEP:
      return Op::kOptimizerStep;
    default:
      return std::nullopt;
  }
}

std::optional<Stream> StreamOf(v1::Stream stream) {
  switch (stream) {
    case v1::STREAM_COMPUTE:
      return Stream::kCompute;
    case v1::STREAM_PREVIOUS:
      return Stream::kPrevious;
    case v1::STREAM_NEXT:
      return Stream::kNext;
    case v1::STREAM_COLLECTIVE:
      return Stream::kCollective;
    default:
      return std::nullopt;
  }
}

class PlanReader {
 public:
  absl::StatusOr<ProgramSet> Read(const v1::Plan& plan) {
    for (const v1::CollectiveGroup& group : plan.groups()) {
      set_.groups.emplace_back(group.ranks().begin(), group.ranks().end());
    }
    for (const v1::Program& program : plan.programs()) {
      for (const v1::Instruction& instruction : program.instructions())
        PENSTOCK_RETURN_IF_ERROR(Add(static_cast<int32_t>(program.rank()), instruction));
      set_.rank_begin.push_back(static_cast<int32_t>(set_.instructions.size()));
    }
    for (const Transfer& transfer : set_.transfers) {
      if (transfer.send < 0 || transfer.recv < 0)
        return absl::InvalidArgumentError(absl::StrCat("transfer ", transfer.sequence, " from rank ",
                                                       transfer.from_rank, " to rank ", transfer.to_rank,
                                                       " has one end only"));
    }
    return std::move(set_);
  }

 private:
  absl::Status Add(int32_t rank, const v1::Instruction& from) {
    const std::optional<Op> op = OpOf(from.op());
    const std::optional<Stream> stream = StreamOf(from.stream());
    if (!op.has_value() || !stream.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("plan.programs[", rank, "].instructions[", from.id(),
                                                     "]: an op or a stream that cannot be replayed"));
    }
    Instruction to;
    to.op = *op;
    to.stream = *stream;
    to.part = static_cast<uint8_t>(from.part());
    to.micro_batch = static_cast<int32_t>(from.micro_batch());
    to.stage = static_cast<int32_t>(from.stage());
    to.waits_for = static_cast<int32_t>(from.transfer_id());
    to.deps_begin = static_cast<int32_t>(set_.deps.size());
    set_.deps.insert(set_.deps.end(), from.deps().begin(), from.deps().end());
    to.deps_end = static_cast<int32_t>(set_.deps.size());
    to.duration_ns = from.expected_duration_ns();
    to.own_ns = from.own_duration_ns();
    if (from.has_transfer()) to.joint = TransferOf(rank, from);
    if (from.has_collective()) to.joint = CollectiveOf(from.collective());
    set_.instructions.push_back(to);
    return absl::OkStatus();
  }

  int32_t TransferOf(int32_t rank, const v1::Instruction& from) {
    const bool sends = from.op() == v1::OP_SEND;
    const auto peer = static_cast<int32_t>(from.transfer().peer());
    const auto ends = sends ? std::pair(rank, peer) : std::pair(peer, rank);
    const auto [found, added] =
        transfers_.try_emplace(std::tuple(ends.first, ends.second, from.transfer().sequence()),
                               static_cast<int32_t>(set_.transfers.size()));
    if (added) {
      Transfer transfer;
      transfer.from_rank = ends.first;
      transfer.to_rank = ends.second;
      transfer.bytes = static_cast<int64_t>(from.transfer().bytes());
      transfer.sequence = static_cast<int32_t>(from.transfer().sequence());
      transfer.order = static_cast<int32_t>(from.transfer().order());
      set_.transfers.push_back(transfer);
    }
    const auto position = static_cast<int32_t>(set_.instructions.size());
    (sends ? set_.transfers[found->second].send : set_.transfers[found->second].recv) = position;
    return found->second;
  }

  int32_t CollectiveOf(const v1::Collective& from) {
    const auto [found, added] = collectives_.try_emplace(std::pair(from.group(), from.sequence()),
                                                         static_cast<int32_t>(set_.collectives.size()));
    if (added) {
      Collective collective;
      collective.group = static_cast<int32_t>(from.group());
      collective.sequence = static_cast<int32_t>(from.sequence());
      collective.bytes = static_cast<int64_t>(from.bytes());
      set_.collectives.push_back(collective);
    }
    ++set_.collectives[found->second].members;
    return found->second;
  }

  ProgramSet set_;
  // By sender, receiver and sequence; by group and sequence.
  std::map<std::tuple<int32_t, int32_t, uint32_t>, int32_t> transfers_;
  std::map<std::pair<uint32_t, uint32_t>, int32_t> collectives_;
};

}  // namespace

absl::StatusOr<ProgramSet> ProgramSetOfPlan(const v1::Plan& plan) { return PlanReader().Read(plan); }

}  // namespace penstock::core
