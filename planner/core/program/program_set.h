// The programs of all ranks as flat arrays: what planner/core/comm makes and planner/core/simulate runs.
//
// Instructions of rank r are instructions[rank_begin[r] .. rank_begin[r + 1]). Ids and deps are positions
// within the rank's own program; transfers and collectives point at positions in the whole array.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/core/cost/pass_exchange.h"
#include "planner/core/cost/reshard_time.h"

namespace penstock::core {

enum class Op : uint8_t {
  kLoad,
  kForward,
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  kSend,
  kRecv,
  kWait,
  kFree,
  kReduceGradients,
  kReshard,
  kOptimizerStep,
};

enum class Stream : uint8_t { kCompute, kPrevious, kNext, kCollective };
inline constexpr int kStreams = 4;

// Whether the op is a computation of a micro-batch.
inline bool IsPass(Op op) {
  return op == Op::kForward || op == Op::kBackward || op == Op::kBackwardInput || op == Op::kBackwardWeight;
}

// `part` of SEND and RECV, of WAIT, of FREE, and of RESHARD.
enum TransferPart : uint8_t { kActivationPart = 0, kGradientPart = 1 };
enum WaitPart : uint8_t {
  kReceivedActivation = 0,
  kReceivedGradient = 1,
  kSentActivation = 2,
  kSentGradient = 3
};
enum FreePart : uint8_t { kOutputActivation = 0, kInputGradient = 1, kLoadedTokens = 2 };
enum ReshardPart : uint8_t { kParametersToStages = 0, kGradientsToShares = 1 };

struct Instruction {
  Op op = Op::kLoad;
  Stream stream = Stream::kCompute;
  uint8_t part = 0;
  int32_t micro_batch = 0;
  int32_t stage = 0;
  // SEND and RECV: index into transfers. REDUCE_GRADIENTS, RESHARD, OPTIMIZER_STEP, and passes of a stage
  // group of several ranks: into collectives. Otherwise -1.
  int32_t joint = -1;
  // WAIT: id of the SEND or RECV.
  int32_t waits_for = 0;
  // Range in `deps`.
  int32_t deps_begin = 0;
  int32_t deps_end = 0;
  int64_t duration_ns = 0;
  // Joint passes: what this rank takes alone, and what it exchanges (into exchanges; -1: nothing).
  int64_t own_ns = 0;
  int32_t exchange = -1;
  int64_t acquired_bytes = 0;
  int64_t released_bytes = 0;
};

struct Transfer {
  // Positions in `instructions`.
  int32_t send = -1;
  int32_t recv = -1;
  int32_t from_rank = 0;
  int32_t to_rank = 0;
  int64_t bytes = 0;
  // Counts the transfers from `from_rank` to `to_rank`.
  int32_t sequence = 0;
  // Place in the order of all transfers of the replica.
  int32_t order = 0;
};

// An operation that all ranks of a group start together.
struct Collective {
  int32_t group = 0;
  int32_t sequence = 0;
  int64_t bytes = 0;
  int32_t members = 0;
};

// Of programs with RESHARDs: these take what passes leave of them, which follows when the passes run.
struct ReshardBesidePasses {
  ReshardTime time;
  // Of each stage of the pipeline.
  std::vector<int32_t> layers;
};

struct ProgramSet {
  std::vector<Instruction> instructions;
  std::vector<int32_t> rank_begin = {0};
  std::vector<int32_t> deps;
  std::vector<Transfer> transfers;
  std::vector<Collective> collectives;
  std::vector<PassExchange> exchanges;
  // Ranks of each group.
  std::vector<std::vector<int32_t>> groups;
  // Of each rank.
  std::vector<int64_t> static_bytes;
  // Without it RESHARDs take their own durations.
  std::optional<ReshardBesidePasses> reshard;

  int ranks() const { return static_cast<int>(rank_begin.size()) - 1; }
};

}  // namespace penstock::core
