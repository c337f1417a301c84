#include "planner/core/simulate/simulator.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"

namespace penstock::core {
namespace {

// Rank whose program holds a position.
int RankOf(const ProgramSet& programs, int32_t position) {
  const auto after = std::upper_bound(programs.rank_begin.begin(), programs.rank_begin.end(), position);
  return static_cast<int>(after - programs.rank_begin.begin()) - 1;
}

}  // namespace

absl::Status Simulator::Run(const ProgramSet& programs, StopToken stop) {
  const int ranks = programs.ranks();
  start_ns_.assign(programs.instructions.size(), 0);
  end_ns_.assign(programs.instructions.size(), 0);
  stream_end_ns_.assign(static_cast<size_t>(ranks) * kStreams, 0);
  next_.assign(programs.rank_begin.begin(), programs.rank_begin.end() - 1);
  transfers_.assign(programs.transfers.size(), Meeting());
  collectives_.assign(programs.collectives.size(), Meeting());
  collective_positions_.resize(programs.collectives.size());
  for (auto& positions : collective_positions_) positions.clear();
  runnable_.clear();
  for (int rank = ranks - 1; rank >= 0; --rank) runnable_.push_back(rank);
  makespan_ns_ = 0;
  while (!runnable_.empty()) {
    const int rank = runnable_.back();
    runnable_.pop_back();
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    Advance(programs, rank);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (next_[rank] < programs.rank_begin[rank + 1]) {
      return absl::InternalError(absl::StrCat("the programs block each other: rank ", rank,
                                              " stands at instruction ",
                                              next_[rank] - programs.rank_begin[rank]));
    }
    for (int stream = 0; stream < kStreams; ++stream) {
      makespan_ns_ = std::max(makespan_ns_, stream_end_ns_[rank * kStreams + stream]);
    }
  }
  return absl::OkStatus();
}

void Simulator::Advance(const ProgramSet& programs, int rank) {
  const int32_t begin = programs.rank_begin[rank];
  const int32_t end = programs.rank_begin[rank + 1];
  int64_t* stream_end = &stream_end_ns_[static_cast<size_t>(rank) * kStreams];
  while (next_[rank] < end) {
    const int32_t position = next_[rank];
    const Instruction& instruction = programs.instructions[position];
    int64_t& free = stream_end[static_cast<int>(instruction.stream)];
    int64_t ready = free;
    for (int32_t dep = instruction.deps_begin; dep < instruction.deps_end; ++dep) {
      ready = std::max(ready, end_ns_[begin + programs.deps[dep]]);
    }
    if (instruction.joint >= 0) {
      if (!Arrive(programs, rank, position, ready)) return;
      continue;
    }
    start_ns_[position] = ready;
    free = ready + instruction.duration_ns;
    end_ns_[position] = free;
    ++next_[rank];
  }
}

bool Simulator::Arrive(const ProgramSet& programs, int rank, int32_t position, int64_t ready_ns) {
  const Instruction& instruction = programs.instructions[position];
  int64_t hidden_ns = 0;
  const auto finish = [&](int32_t member, int member_rank, const Meeting& meeting) {
    start_ns_[member] = meeting.ready_ns;
    end_ns_[member] = meeting.ready_ns + programs.instructions[member].duration_ns - hidden_ns;
    const int stream = static_cast<int>(programs.instructions[member].stream);
    stream_end_ns_[static_cast<size_t>(member_rank) * kStreams + stream] = end_ns_[member];
    ++next_[member_rank];
    if (member_rank != rank) runnable_.push_back(member_rank);
  };
  const bool transfer = instruction.op == Op::kSend || instruction.op == Op::kRecv;
  Meeting& meeting = transfer ? transfers_[instruction.joint] : collectives_[instruction.joint];
  meeting.ready_ns = std::max(meeting.ready_ns, ready_ns);
  ++meeting.arrived;
  if (transfer) {
    if (meeting.arrived < 2) return false;
    const Transfer& ends = programs.transfers[instruction.joint];
    finish(ends.send, ends.from_rank, meeting);
    finish(ends.recv, ends.to_rank, meeting);
    return true;
  }
  std::vector<int32_t>& positions = collective_positions_[instruction.joint];
  positions.push_back(position);
  if (meeting.arrived < programs.collectives[instruction.joint].members) return false;
  if (programs.reshard.has_value() && instruction.op == Op::kReshard &&
      instruction.part == kGradientsToShares)
    hidden_ns = HiddenNs(programs, positions, meeting.ready_ns);
  for (const int32_t member : positions) finish(member, RankOf(programs, member), meeting);
  return true;
}

int64_t Simulator::HiddenNs(const ProgramSet& programs, const std::vector<int32_t>& members,
                            int64_t start_ns) const {
  const ReshardTime& time = programs.reshard->time;
  std::optional<double> lead_ns;
  for (const int32_t member : members) {
    const Instruction& reshard = programs.instructions[member];
    const int32_t begin = programs.rank_begin[RankOf(programs, member)];
    // The last pass on each of the rank's stages.
    const absl::Span<const int32_t> passes =
        absl::MakeConstSpan(programs.deps)
            .subspan(reshard.deps_begin, static_cast<size_t>(reshard.deps_end - reshard.deps_begin));
    for (const int32_t pass : passes) {
      const int32_t stage = programs.instructions[begin + pass].stage;
      StageOfRank of_rank = {.layers = programs.reshard->layers[stage]};
      for (const int32_t other : passes) {
        const int32_t other_stage = programs.instructions[begin + other].stage;
        of_rank.layers_of_rank += programs.reshard->layers[other_stage];
        if (other_stage < stage) of_rank.below += programs.reshard->layers[other_stage];
      }
      const int64_t end = end_ns_[begin + pass];
      const double lead =
          static_cast<double>(start_ns - end) + time.LeadNs(end - start_ns_[begin + pass], of_rank);
      lead_ns = std::min(lead_ns.value_or(lead), lead);
    }
  }
  return time.whole_ns - time.GradientsNs(lead_ns.value_or(0));
}

}  // namespace penstock::core
