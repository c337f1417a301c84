#include "planner/core/search/schedule_space.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace penstock::core {
namespace {

// More than any pipeline has micro-batches in flight.
constexpr int32_t kUnlimited = 1 << 20;

}  // namespace

ScheduleSpace::ScheduleSpace(const CostModel& costs, const Job& job, MemoryRoom room, Caution caution,
                             StopToken stop)
    : costs_(costs),
      topology_(job.topology),
      strict_(job.schedule == ScheduleFamily::kOneForwardOneBackward && costs.stages() == costs.positions()),
      may_split_(caution != Caution::kMost &&
                 (job.schedule == ScheduleFamily::kAuto || job.schedule == ScheduleFamily::kSplitBackward)),
      room_(std::move(room)),
      caution_(caution),
      stop_(stop),
      optimizer_ns_(costs.positions(), 0) {
  for (int stage = 0; stage < costs.stages(); ++stage) {
    levels_.push_back(RecomputeLevels(costs.stage(stage), job.recompute, costs.has_selective()));
    reduce_ns_.push_back(costs.LeastReduceNs(stage));
  }
  for (int position = 0; position < costs.positions(); ++position)
    optimizer_ns_[position] = costs.WholeIterationNs(position);
}

int32_t ScheduleSpace::Depth(int stage) const {
  if (one_at_a_time()) return 1;
  const int to_the_end = costs_.stages() - stage;
  if (strict_) return to_the_end;
  return (to_the_end * costs_.positions() + costs_.stages() - 1) / costs_.stages();
}

std::vector<int32_t> ScheduleSpace::LowestLevels() const {
  std::vector<int32_t> lowest;
  lowest.reserve(levels_.size());
  for (const LevelRange& range : levels_) lowest.push_back(range.lowest);
  return lowest;
}

FittedRules ScheduleSpace::Fit(const MicroBatchTable& table, absl::Span<const int32_t> slots,
                               int replica) const {
  FittedRules fitted;
  ScheduleRules& rules = fitted.rules;
  rules.one_forward_one_backward = strict_;
  rules.split.assign(costs_.stages(), may_split_ ? 1 : 0);
  // Nobody waits for the gradients of its input.
  rules.split.front() = 0;
  rules.forward_first.assign(costs_.positions(), 0);
  rules.eager_weights.assign(costs_.positions(), 1);
  const auto count = static_cast<int32_t>(slots.size());
  std::vector<int32_t> in_flight;
  for (int stage = 0; stage < costs_.stages(); ++stage) {
    rules.ahead.push_back(strict_ || one_at_a_time() ? Depth(stage) : kUnlimited);
    in_flight.push_back(std::min(count, Depth(stage)));
  }
  fitted.levels = FitLevels(table, slots, in_flight, replica);
  return fitted;
}

std::vector<int32_t> ScheduleSpace::FitLevelsForAll(const MicroBatchTable& table,
                                                    absl::Span<const int32_t> slots, int replica) const {
  return FitLevels(table, slots, std::vector<int32_t>(costs_.stages(), static_cast<int32_t>(slots.size())),
                   replica);
}

std::vector<int32_t> ScheduleSpace::FitLevels(const MicroBatchTable& table, absl::Span<const int32_t> slots,
                                              absl::Span<const int32_t> in_flight, int replica) const {
  const int stages = costs_.stages();
  std::vector<int32_t> levels = LowestLevels();
  std::vector<StageMemory> largest(stages);
  std::vector<StageMemory> of_slot;
  for (const int32_t slot : slots) {
    if (stop_.stopped()) return levels;
    LargestMemories(costs_, table.Shares(slot), &of_slot);
    for (int stage = 0; stage < stages; ++stage) Enlarge(of_slot[stage], &largest[stage]);
  }
  const auto held = [&](int stage) {
    const StageRecompute recompute =
        RecomputeAtLevel(costs_.stage(stage), levels[stage], costs_.has_selective());
    return in_flight[stage] * HeldBytes(costs_, stage, largest[stage], recompute);
  };
  const absl::Span<const int64_t> available = room_.Of(replica);
  for (int rank = 0; rank < costs_.positions(); ++rank) {
    while (!stop_.stopped()) {
      int64_t needed = 0;
      int64_t passing = 0;
      int raise = -1;
      int64_t most_held = 0;
      for (int stage = 0; stage < stages; ++stage) {
        if (costs_.position_of(stage) != rank) continue;
        const int64_t bytes = held(stage);
        needed += bytes;
        passing = std::max(passing, MostPassingBytes(largest[stage], buffers()));
        if (levels[stage] < levels_[stage].highest && (raise < 0 || bytes > most_held)) {
          raise = stage;
          most_held = bytes;
        }
      }
      if (needed + passing <= available[rank] || raise < 0) break;
      ++levels[raise];
    }
  }
  return levels;
}

int64_t ScheduleSpace::BytesAlone(int rank, const Share& share) const {
  int64_t held = 0;
  int64_t most = 0;
  // A stage goes forward when the earlier ones on its rank have, and back when the later ones have.
  for (int stage = 0; stage < costs_.stages(); ++stage) {
    if (costs_.position_of(stage) != rank) continue;
    const StageMemory memory = costs_.Memory(stage, share);
    const StageRecompute recompute =
        RecomputeAtLevel(costs_.stage(stage), levels_[stage].highest, costs_.has_selective());
    held += HeldBytes(costs_, stage, memory, recompute);
    most = std::max(most, held + MostPassingBytes(memory, TransferBuffers::kOwn));
  }
  return most;
}

// Of the fullest rank as it is, not of one that had the most of everything: a refusal rests on it.
int64_t ScheduleSpace::BytesAlone(int rank, absl::Span<const Share> shares) const {
  int64_t most = 0;
  for (const Share& share : shares) most = std::max(most, BytesAlone(rank, share));
  return most;
}

int64_t ScheduleSpace::BytesAlone(int rank, const TokenSums& sums, int64_t enough) const {
  const int contexts = costs_.group().context;
  if (contexts == 1) return BytesAlone(rank, WholeShare(sums));
  if (sums.rows != 1) return BytesAlone(rank, WholeShare(costs_.EvenShare(sums)));
  int64_t least = BytesAlone(rank, WholeShare(sums));
  const SampleTokens sample{0, static_cast<uint32_t>(sums.target), static_cast<uint32_t>(sums.loss)};
  const uint32_t index = 0;
  // Bytes do not go by squares.
  const Row row{.length = sample.target, .less_square = 0, .samples = {&index, 1}};
  std::vector<Share> shares;
  for (int32_t ranks = 2; least > enough && ranks <= contexts && row.length >= 2 * ranks; ranks *= 2) {
    SharesOf({&row, 1}, {&sample, 1}, {Span{0, ranks}}, costs_.nodes(), contexts, &shares);
    for (Share& share : shares) {
      // Of a row of several samples it is not known where they are; other layouts have one in a row.
      if (sums.layout == Layout::kConcatenated) share.sums.loss = std::min(sums.loss, share.sums.target);
    }
    least = std::min(least, BytesAlone(rank, shares));
  }
  return least;
}

bool ScheduleSpace::FitsReplica(int replica, const TokenSums& sums) const {
  for (int rank = 0; rank < costs_.positions(); ++rank) {
    if (!FitsAlone(rank, sums, replica)) return false;
  }
  return true;
}

bool ScheduleSpace::FitsSomewhere(const TokenSums& sums) const {
  // Those that are alike are asked once.
  const int replicas = room_.alike() ? 1 : topology_.replicas();
  for (int replica = 0; replica < replicas; ++replica) {
    if (FitsReplica(replica, sums)) return true;
  }
  return false;
}

TokenRoom ScheduleSpace::RoomOfRank() const {
  TokenRoom room;
  if (costs_.group().context == 1) return room;
  // Rows go where the fullest rank has least, whatever time that takes.
  if (one_at_a_time()) room.most_tokens = 0;
  constexpr int64_t kMany = 1 << 20;
  Share many;
  many.sums.target = many.sums.loss = kMany;
  Share divided = many;
  divided.divided_tokens = kMany;
  for (int rank = 0; rank < costs_.positions(); ++rank) {
    const auto bytes = static_cast<double>(BytesAlone(rank, many));
    if (bytes <= 0) continue;
    room.most_tokens = std::min(room.most_tokens, static_cast<double>(room_.LeastAt(rank)) / bytes * kMany);
    room.of_key = std::max(room.of_key, static_cast<double>(BytesAlone(rank, divided)) / bytes - 1);
  }
  return room;
}

}  // namespace penstock::core
