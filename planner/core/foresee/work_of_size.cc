#include "planner/core/foresee/work_of_size.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace penstock::core {
namespace {

// Of lengths below it each has its own bucket, and so many each doubling of them.
constexpr int kBucketBits = 3;
constexpr double kNeverReached = std::numeric_limits<double>::infinity();

// Ascending in the length.
uint32_t BucketOf(uint32_t length) {
  const int shift = std::max(0, static_cast<int>(std::bit_width(length)) - 1 - kBucketBits);
  return (static_cast<uint32_t>(shift) << (kBucketBits + 1)) + (length >> shift);
}

// Samples as they count in micro-batches: of a padded one, all are as long as the longest.
struct Sums {
  double samples = 0;
  double source = 0;
  double target = 0;
  double loss = 0;
  double less_square = 0;

  void Add(double count, const SampleTokens& each) {
    samples += count;
    source += count * each.source;
    target += count * each.target;
    less_square += count * each.less_square;
  }
  Sums& operator+=(const Sums& more) {
    samples += more.samples;
    source += more.source;
    target += more.target;
    loss += more.loss;
    less_square += more.less_square;
    return *this;
  }
  SampleTokens Mean() const {
    const auto whole = [&](double sum) { return static_cast<uint32_t>(std::llround(sum / samples)); };
    return {whole(source), whole(target), whole(loss), less_square / samples};
  }
};

// Of one micro-batch.
Sums SumsOfGroup(absl::Span<const SampleTokens> group, Layout layout) {
  Sums sums;
  SampleTokens longest;
  for (const SampleTokens& sample : group) {
    sums.loss += sample.loss;
    if (layout != Layout::kPadded) {
      sums.Add(1, sample);
      continue;
    }
    longest.source = std::max(longest.source, sample.source);
    if (sample.target <= longest.target) continue;
    longest.target = sample.target;
    longest.less_square = sample.less_square;
  }
  if (layout == Layout::kPadded) sums.Add(static_cast<double>(group.size()), longest);
  return sums;
}

// Of each rank of a pipeline that runs the micro-batches of a table, so often each (empty `times`: once).
std::vector<double> RankWork(const MicroBatchTable& table, absl::Span<const double> times) {
  const CostModel& costs = table.costs();
  const int64_t* const forward = table.field(MicroBatchTable::kForwardNs);
  const int64_t* const backward = table.field(MicroBatchTable::kBackwardNs);
  std::vector<double> ranks(costs.positions());
  for (int slot = 0; slot < table.slots(); ++slot) {
    const double often = times.empty() ? 1 : times[slot];
    for (int stage = 0; stage < costs.stages(); ++stage) {
      const int32_t at = table.offset(slot) + stage;
      ranks[costs.position_of(stage)] += often * static_cast<double>(forward[at] + backward[at]);
    }
  }
  return ranks;
}

// When each rank can begin: the quickest micro-batch has been through the stages before it.
std::vector<double> Reached(const MicroBatchTable& table) {
  const CostModel& costs = table.costs();
  const int64_t* const forward = table.field(MicroBatchTable::kForwardNs);
  std::vector<double> reached(costs.positions(), kNeverReached);
  for (int slot = 0; slot < table.slots(); ++slot) {
    double ns = 0;
    for (int stage = 0; stage < costs.stages(); ++stage) {
      double& rank = reached[costs.position_of(stage)];
      rank = std::min(rank, ns);
      ns += static_cast<double>(forward[table.offset(slot) + stage]);
    }
  }
  return reached;
}

bool IsKnown(const MicroBatchTable& table) {
  for (int slot = 0; slot < table.slots(); ++slot) {
    if (!table.known(slot)) return false;
  }
  return true;
}

double Busiest(const MicroBatchTable& table, absl::Span<const double> times) {
  if (!IsKnown(table)) return kNeverReached;
  const std::vector<double> ranks = RankWork(table, times);
  return *std::max_element(ranks.begin(), ranks.end());
}

}  // namespace

double BusiestNs(const MicroBatchTable& table) { return Busiest(table, {}); }

void SetAllLevels(absl::Span<const int32_t> levels, MicroBatchTable* table) {
  for (int slot = 0; slot < table->slots(); ++slot) {
    for (int stage = 0; stage < static_cast<int>(levels.size()); ++stage) {
      if (table->levels(slot)[stage] != levels[stage]) table->UpdateLevel(slot, stage, levels[stage]);
    }
  }
}

WorkOfSize::Buckets WorkOfSize::BucketsOf(absl::Span<const SampleTokens> tokens, int size, Layout layout) {
  absl::flat_hash_map<uint64_t, size_t> indices;
  std::vector<Sums> sums;
  for (size_t first = 0; first < tokens.size(); first += size) {
    const Sums group = SumsOfGroup(tokens.subspan(first, size), layout);
    const SampleTokens mean = group.Mean();
    const uint64_t key = static_cast<uint64_t>(BucketOf(mean.source)) << 32 | BucketOf(mean.target);
    const size_t bucket = indices.try_emplace(key, sums.size()).first->second;
    if (bucket == sums.size()) sums.emplace_back();
    sums[bucket] += group;
  }
  Buckets buckets;
  for (const Sums& bucket : sums) {
    buckets.means.push_back(bucket.Mean());
    buckets.times.push_back(bucket.samples / size);
  }
  return buckets;
}

WorkOfSize::WorkOfSize(const ScheduleSpace& space, Buckets buckets, int size, Layout layout)
    : size_(size),
      buckets_(std::move(buckets)),
      table_(space.costs(), buckets_.means, space.LowestLevels(), space.buffers(), space.RoomOfRank()) {
  table_.Reserve(buckets_.means.size());
  for (uint32_t bucket = 0; bucket < buckets_.means.size(); ++bucket)
    table_.Update(table_.Add(std::vector<uint32_t>(size, bucket), layout));
  work_ns_ = RankWork(table_, buckets_.times);
  reached_ns_ = Reached(table_);
}

double WorkOfSize::micro_batches() const {
  return std::accumulate(buckets_.times.begin(), buckets_.times.end(), 0.0);
}

double WorkOfSize::LeastNs(int replicas) const {
  if (!IsKnown(table_)) return kNeverReached;
  double least = 0;
  for (size_t rank = 0; rank < work_ns_.size(); ++rank)
    least = std::max(least, work_ns_[rank] / replicas + reached_ns_[rank]);
  return least;
}

double WorkOfSize::BusiestAt(absl::Span<const int32_t> levels) {
  SetAllLevels(levels, &table_);
  return Busiest(table_, buckets_.times);
}

}  // namespace penstock::core
