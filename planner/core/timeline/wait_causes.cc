#include "planner/core/timeline/wait_causes.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "planner/core/contract/whole_iteration.h"
#include "planner/core/timeline/operation_of_instruction.h"

namespace penstock::core {
namespace {

class WaitFinder {
 public:
  WaitFinder(const v1::Plan& plan, const TimesByRank& times_by_rank) : plan_(plan) {
    const size_t ranks = std::min(times_by_rank.size(), static_cast<size_t>(plan.programs_size()));
    causes_.resize(plan.programs_size());
    for (uint32_t rank = 0; rank < ranks; ++rank)
      for (const InstructionTime& time : times_by_rank[rank]) Look(rank, time);
  }

  std::vector<std::map<uint32_t, WaitCause>> Causes() && {
    for (const auto& [transfer, wait] : waits_) {
      const auto sent = sent_.find(transfer);
      if (sent != sent_.end()) Add(wait, std::get<0>(transfer), sent->second);
    }
    for (const auto& [_, members] : together_) {
      const auto last =
          std::ranges::max_element(members, {}, [](const Member& member) { return member.time.start_ns; });
      if (members.size() < 2) continue;
      for (const Member& member : members) Add(member, last->rank, last->time.start_ns);
    }
    return std::move(causes_);
  }

 private:
  // From, to, and the number among the transfers from the one to the other.
  using TransferKey = std::tuple<uint32_t, uint32_t, uint32_t>;
  struct Member {
    uint32_t rank = 0;
    InstructionTime time;
  };

  void Look(uint32_t rank, const InstructionTime& time) {
    const v1::Program& program = plan_.programs(static_cast<int>(rank));
    if (time.id >= static_cast<uint32_t>(program.instructions_size())) return;
    const v1::Instruction& instruction = program.instructions(static_cast<int>(time.id));
    if (instruction.op() == v1::OP_SEND) {
      const v1::Transfer& transfer = instruction.transfer();
      sent_[{rank, transfer.peer(), transfer.sequence()}] = time.start_ns;
    } else if (IsArrival(program, instruction)) {
      const v1::Transfer& transfer =
          program.instructions(static_cast<int>(instruction.transfer_id())).transfer();
      waits_[{transfer.peer(), rank, transfer.sequence()}] = {rank, time};
    } else if (IsOfWholeIteration(instruction.op()) && instruction.has_collective()) {
      const v1::Collective& collective = instruction.collective();
      together_[{collective.group(), collective.sequence()}].push_back({rank, time});
    }
  }

  void Add(const Member& waiting, uint32_t rank, int64_t began_ns) {
    const int64_t late_ns =
        std::clamp<int64_t>(began_ns - waiting.time.start_ns, 0, waiting.time.duration_ns);
    if (waiting.time.duration_ns == 0) return;
    causes_[waiting.rank][waiting.time.id] = {
        .rank = rank, .late_ns = late_ns, .transfer_ns = waiting.time.duration_ns - late_ns};
  }

  const v1::Plan& plan_;
  std::map<TransferKey, int64_t> sent_;
  std::map<TransferKey, Member> waits_;
  // By group and sequence.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Member>> together_;
  std::vector<std::map<uint32_t, WaitCause>> causes_;
};

}  // namespace

std::vector<std::map<uint32_t, WaitCause>> WaitCauses(const v1::Plan& plan,
                                                      const TimesByRank& times_by_rank) {
  return WaitFinder(plan, times_by_rank).Causes();
}

}  // namespace penstock::core
