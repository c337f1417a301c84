#include "planner/core/timeline/plan_messages.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace penstock::core {
namespace {

// All pairs of as many ranks say more than pairs with the first do; of more it would be too many.
constexpr size_t kMostRanksInPairs = 16;

class MessageFinder {
 public:
  MessageFinder(const v1::Plan& plan, const TimesByRank& times_by_rank) : plan_(plan) {
    const size_t ranks = std::min(times_by_rank.size(), static_cast<size_t>(plan.programs_size()));
    for (uint32_t rank = 0; rank < ranks; ++rank)
      for (const InstructionTime& time : times_by_rank[rank]) Look(rank, time);
  }

  std::vector<ClockMessage> Messages() const {
    std::vector<ClockMessage> messages;
    for (const auto& [transfer, started_ns] : started_) {
      const auto arrived = arrived_.find(transfer);
      if (arrived == arrived_.end()) continue;
      messages.push_back({.from = std::get<0>(transfer),
                          .to = std::get<1>(transfer),
                          .started_ns = started_ns,
                          .arrived_ns = arrived->second});
    }
    for (const auto& [_, members] : together_) AddMeeting(members, messages);
    return messages;
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
    const auto instruction_of = [&](uint32_t id) {
      const bool known = id < static_cast<uint32_t>(program.instructions_size());
      return known ? &program.instructions(static_cast<int>(id)) : nullptr;
    };
    const v1::Instruction* const instruction = instruction_of(time.id);
    if (instruction == nullptr) return;
    if (instruction->op() == v1::OP_SEND) {
      const v1::Transfer& transfer = instruction->transfer();
      started_[{rank, transfer.peer(), transfer.sequence()}] = time.start_ns;
    } else if (instruction->op() == v1::OP_WAIT) {
      const v1::Instruction* const waited_for = instruction_of(instruction->transfer_id());
      if (waited_for == nullptr || waited_for->op() != v1::OP_RECV) return;
      const v1::Transfer& transfer = waited_for->transfer();
      arrived_[{transfer.peer(), rank, transfer.sequence()}] = time.start_ns + time.duration_ns;
    } else if (instruction->op() == v1::OP_REDUCE_GRADIENTS || instruction->op() == v1::OP_OPTIMIZER_STEP) {
      if (!instruction->has_collective()) return;
      const v1::Collective& collective = instruction->collective();
      together_[{collective.group(), collective.sequence()}].push_back({rank, time});
    }
  }

  static void AddMeeting(const std::vector<Member>& members, std::vector<ClockMessage>& messages) {
    const size_t centres = members.size() <= kMostRanksInPairs ? members.size() : 1;
    for (size_t i = 0; i < centres; ++i) {
      for (size_t j = i + 1; j < members.size(); ++j) {
        messages.push_back(Between(members[i], members[j]));
        messages.push_back(Between(members[j], members[i]));
      }
    }
  }

  static ClockMessage Between(const Member& from, const Member& to) {
    return {.from = from.rank,
            .to = to.rank,
            .started_ns = from.time.start_ns,
            .arrived_ns = to.time.start_ns + to.time.duration_ns};
  }

  const v1::Plan& plan_;
  std::map<TransferKey, int64_t> started_;
  std::map<TransferKey, int64_t> arrived_;
  // By group and sequence.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Member>> together_;
};

}  // namespace

std::vector<ClockMessage> MessagesOf(const v1::Plan& plan, const TimesByRank& times_by_rank) {
  return MessageFinder(plan, times_by_rank).Messages();
}

}  // namespace penstock::core
