#include "planner/core/simulate/bubble.h"

#include <algorithm>

namespace penstock::core {
namespace {

bool IsPass(Op op) { return op == Op::kForward || op == Op::kBackward; }

// End of the last BACKWARD of each rank.
std::vector<int64_t> LastPassEnds(const ProgramSet& programs, const Simulator& simulator) {
  std::vector<int64_t> ends(programs.ranks(), 0);
  for (int rank = 0; rank < programs.ranks(); ++rank) {
    for (int32_t i = programs.rank_begin[rank]; i < programs.rank_begin[rank + 1]; ++i) {
      if (IsPass(programs.instructions[i].op)) ends[rank] = simulator.end_ns()[i];
    }
  }
  return ends;
}

// The walk over one rank's passes.
struct Walk {
  bool started = false;
  int64_t free_ns = 0;
  // Start and end of the transfer that the next pass waits for; SEND data is ready when the transfer could
  // have begun.
  int64_t data_ready_ns = 0;
  int64_t arrival_ns = 0;
};

// When the data of a received transfer was ready at its sender: the end of the pass that made it.
int64_t DataReady(const ProgramSet& programs, const Simulator& simulator, const Transfer& transfer) {
  const Instruction& send = programs.instructions[transfer.send];
  int64_t ready = 0;
  for (int32_t dep = send.deps_begin; dep < send.deps_end; ++dep) {
    ready = std::max(ready, simulator.end_ns()[programs.rank_begin[transfer.from_rank] + programs.deps[dep]]);
  }
  return ready;
}

void AddPass(int64_t start, int64_t end, Walk* walk, RankTime* time) {
  if (!walk->started) {
    time->fill_ns = start;
    walk->started = true;
  } else {
    const int64_t gap = start - walk->free_ns;
    const int64_t in_transfer = std::max<int64_t>(
        0, std::min(start, walk->arrival_ns) - std::max(walk->free_ns, walk->data_ready_ns));
    time->transfer_ns += std::min(gap, in_transfer);
    time->dependency_ns += gap - std::min(gap, in_transfer);
  }
  time->busy_ns += end - start;
  walk->free_ns = end;
  walk->arrival_ns = 0;
  walk->data_ready_ns = 0;
}

RankTime ExplainRank(const ProgramSet& programs, const Simulator& simulator, int rank) {
  RankTime time;
  Walk walk;
  const int32_t begin = programs.rank_begin[rank];
  for (int32_t i = begin; i < programs.rank_begin[rank + 1]; ++i) {
    const Instruction& instruction = programs.instructions[i];
    if (IsPass(instruction.op)) AddPass(simulator.start_ns()[i], simulator.end_ns()[i], &walk, &time);
    if (instruction.op == Op::kOptimizerStep) time.busy_ns += instruction.duration_ns;
    const bool receives = instruction.op == Op::kWait &&
                          (instruction.part == kReceivedActivation || instruction.part == kReceivedGradient);
    if (!receives) continue;
    const int32_t receive = begin + instruction.waits_for;
    walk.arrival_ns = simulator.end_ns()[receive];
    walk.data_ready_ns =
        DataReady(programs, simulator, programs.transfers[programs.instructions[receive].joint]);
  }
  return time;
}

}  // namespace

std::vector<RankTime> ExplainTime(const ProgramSet& programs, const Simulator& simulator, int pipeline) {
  const int ranks = programs.ranks();
  const std::vector<int64_t> last = LastPassEnds(programs, simulator);
  const int64_t all_end = ranks == 0 ? 0 : *std::max_element(last.begin(), last.end());
  std::vector<RankTime> times;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto replica = last.begin() + rank / pipeline * pipeline;
    const int64_t replica_end = *std::max_element(replica, replica + pipeline);
    RankTime time = ExplainRank(programs, simulator, rank);
    time.drain_ns = replica_end - last[rank];
    time.imbalance_ns = all_end - replica_end;
    // What is left is the reduction of gradients that nothing hides.
    time.transfer_ns += simulator.makespan_ns() - time.busy_ns - time.fill_ns - time.drain_ns -
                        time.dependency_ns - time.transfer_ns - time.imbalance_ns;
    times.push_back(time);
  }
  return times;
}

std::vector<RankMemory> AccountMemory(const ProgramSet& programs) {
  std::vector<RankMemory> result;
  for (int rank = 0; rank < programs.ranks(); ++rank) {
    RankMemory memory;
    int64_t bytes = programs.static_bytes[rank];
    const int32_t begin = programs.rank_begin[rank];
    for (int32_t i = begin; i < programs.rank_begin[rank + 1]; ++i) {
      bytes += programs.instructions[i].acquired_bytes;
      if (bytes > memory.peak_bytes) {
        memory.peak_bytes = bytes;
        memory.peak_instruction = i - begin;
      }
      bytes -= programs.instructions[i].released_bytes;
    }
    memory.final_bytes = bytes;
    result.push_back(memory);
  }
  return result;
}

}  // namespace penstock::core
