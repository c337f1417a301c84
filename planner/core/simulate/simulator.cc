#include "planner/core/simulate/simulator.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::core {
namespace {

// Rank whose program holds a position.
int RankOf(const ProgramSet& programs, int32_t position) {
  const auto after = std::upper_bound(programs.rank_begin.begin(), programs.rank_begin.end(), position);
  return static_cast<int>(after - programs.rank_begin.begin()) - 1;
}

// The first or last pass on a stage of a rank.
struct PassOnStage {
  int stage = 0;
  int64_t duration_ns = 0;
  // From the end of the RESHARD of parameters to its start, or from its end to the start of that of
  // gradients.
  int64_t apart_ns = 0;
};

// What of a RESHARD all ranks can do beside passes.
class LeastLead {
 public:
  explicit LeastLead(const ReshardBesidePasses& reshard) : reshard_(reshard) {}

  // Those of a rank, one on each of its stages.
  void Add(const std::vector<PassOnStage>& passes) {
    for (const PassOnStage& pass : passes) {
      StageOfRank of_rank = {.layers = reshard_.layers[pass.stage]};
      for (const PassOnStage& other : passes) {
        of_rank.layers_of_rank += reshard_.layers[other.stage];
        if (other.stage < pass.stage) of_rank.below += reshard_.layers[other.stage];
      }
      const double lead_ns =
          static_cast<double>(pass.apart_ns) + reshard_.time.LeadNs(pass.duration_ns, of_rank);
      least_ns_ = std::min(least_ns_, lead_ns);
    }
  }

  // Nothing where no rank has a pass.
  int64_t hidden_ns() const {
    return least_ns_ == kNoPass ? 0 : reshard_.time.whole_ns - reshard_.time.LeftNs(least_ns_);
  }

 private:
  static constexpr double kNoPass = std::numeric_limits<double>::infinity();

  const ReshardBesidePasses& reshard_;
  double least_ns_ = kNoPass;
};

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
  if (programs.reshard.has_value()) EndParametersEarlier(programs, HiddenParametersNs(programs));
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
    hidden_ns = HiddenGradientsNs(programs, positions, meeting.ready_ns);
  for (const int32_t member : positions) finish(member, RankOf(programs, member), meeting);
  return true;
}

int64_t Simulator::HiddenGradientsNs(const ProgramSet& programs, const std::vector<int32_t>& members,
                                     int64_t start_ns) const {
  LeastLead least(*programs.reshard);
  for (const int32_t member : members) {
    const Instruction& reshard = programs.instructions[member];
    const int32_t begin = programs.rank_begin[RankOf(programs, member)];
    // The last pass on each of the rank's stages.
    std::vector<PassOnStage> passes;
    for (int32_t dep = reshard.deps_begin; dep < reshard.deps_end; ++dep) {
      const int32_t pass = begin + programs.deps[dep];
      passes.push_back({.stage = programs.instructions[pass].stage,
                        .duration_ns = DurationOf(pass),
                        .apart_ns = start_ns - end_ns_[pass]});
    }
    least.Add(passes);
  }
  return least.hidden_ns();
}

int64_t Simulator::HiddenParametersNs(const ProgramSet& programs) const {
  LeastLead least(*programs.reshard);
  for (int rank = 0; rank < programs.ranks(); ++rank) {
    const int32_t begin = programs.rank_begin[rank];
    std::vector<PassOnStage> passes;
    for (int32_t position = begin; position < programs.rank_begin[rank + 1]; ++position) {
      const Instruction& pass = programs.instructions[position];
      const auto on_stage = [&](const PassOnStage& other) { return other.stage == pass.stage; };
      if (pass.op != Op::kForward || std::ranges::any_of(passes, on_stage)) continue;
      passes.push_back({.stage = pass.stage,
                        .duration_ns = DurationOf(position),
                        .apart_ns = start_ns_[position] - end_ns_[begin]});
    }
    least.Add(passes);
  }
  return least.hidden_ns();
}

void Simulator::EndParametersEarlier(const ProgramSet& programs, int64_t hidden_ns) {
  if (hidden_ns == 0) return;
  const int64_t ended_ns = end_ns_[programs.rank_begin[0]];
  for (size_t position = 0; position < programs.instructions.size(); ++position) {
    if (start_ns_[position] >= ended_ns) start_ns_[position] -= hidden_ns;
    if (end_ns_[position] >= ended_ns) end_ns_[position] -= hidden_ns;
  }
  makespan_ns_ -= hidden_ns;
}

}  // namespace penstock::core
