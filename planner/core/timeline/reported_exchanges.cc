#include "planner/core/timeline/reported_exchanges.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "planner/core/contract/whole_iteration.h"
#include "planner/core/timeline/operation_of_instruction.h"

namespace penstock::core {
namespace {

class ExchangeFinder {
 public:
  ExchangeFinder(const v1::Plan& plan, const TimesByRank& times_by_rank) : plan_(plan) {
    const size_t ranks = std::min(times_by_rank.size(), static_cast<size_t>(plan.programs_size()));
    for (uint32_t rank = 0; rank < ranks; ++rank)
      for (const InstructionTime& time : times_by_rank[rank]) Look(rank, time);
  }

  ReportedExchanges Exchanges() const {
    ReportedExchanges exchanges;
    for (const auto& [transfer, sent] : sent_) {
      const auto awaited = awaited_.find(transfer);
      if (awaited != awaited_.end())
        exchanges.transfers.push_back({.sent = sent, .awaited = awaited->second});
    }
    for (const auto& [meeting, members] : together_)
      exchanges.meetings.push_back({.op = std::get<2>(meeting), .members = members});
    return exchanges;
  }

 private:
  // From, to, and the number among the transfers from the one to the other.
  using TransferKey = std::tuple<uint32_t, uint32_t, uint32_t>;
  // Group, sequence, and what it is.
  using MeetingKey = std::tuple<uint32_t, uint32_t, v1::Op>;

  void Look(uint32_t rank, const InstructionTime& time) {
    const v1::Program& program = plan_.programs(static_cast<int>(rank));
    if (time.id >= static_cast<uint32_t>(program.instructions_size())) return;
    const v1::Instruction& instruction = program.instructions(static_cast<int>(time.id));
    if (instruction.op() == v1::OP_SEND) {
      const v1::Transfer& transfer = instruction.transfer();
      sent_[{rank, transfer.peer(), transfer.sequence()}] = {rank, time};
    } else if (IsArrival(program, instruction)) {
      const v1::Transfer& transfer =
          program.instructions(static_cast<int>(instruction.transfer_id())).transfer();
      awaited_[{transfer.peer(), rank, transfer.sequence()}] = {rank, time};
    } else if (IsOfWholeIteration(instruction.op()) && instruction.has_collective()) {
      const v1::Collective& collective = instruction.collective();
      together_[{collective.group(), collective.sequence(), instruction.op()}].push_back({rank, time});
    }
  }

  const v1::Plan& plan_;
  std::map<TransferKey, TimeOfRank> sent_;
  std::map<TransferKey, TimeOfRank> awaited_;
  std::map<MeetingKey, std::vector<TimeOfRank>> together_;
};

}  // namespace

ReportedExchanges ExchangesOf(const v1::Plan& plan, const TimesByRank& times_by_rank) {
  return ExchangeFinder(plan, times_by_rank).Exchanges();
}

}  // namespace penstock::core
