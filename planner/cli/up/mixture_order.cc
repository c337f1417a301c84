#include "planner/cli/up/mixture_order.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "absl/numeric/int128.h"
#include "planner/cli/up/shuffle.h"

namespace penstock::cli {
namespace {

// 2^64 divided by the golden ratio: multiples of it fill a circle as evenly as any (Knuth, The Art of
// Computer Programming, volume 3, section 6.4).
constexpr uint64_t kGoldenSection = 0x9e3779b97f4a7c15ULL;
constexpr int kBits = 64;
constexpr absl::uint128 kOne = absl::uint128{1} << kBits;

// Sum of floor((step * i + first) / 2^64) over i < count, as Euclid's algorithm finds it (Graham, Knuth and
// Patashnik, Concrete Mathematics, section 3.5): 2^64 and the step change places until nothing is left.
absl::uint128 SumOfFloors(absl::uint128 count, absl::uint128 step, absl::uint128 first) {
  absl::uint128 sum = 0;
  absl::uint128 divisor = kOne;
  for (;;) {
    sum += count * (count - 1) / 2 * (step / divisor) + count * (first / divisor);
    step %= divisor;
    first %= divisor;
    const absl::uint128 last = step * count + first;
    if (last < divisor) return sum;
    count = last / divisor;
    first = last % divisor;
    std::swap(divisor, step);
  }
}

// How many of the first `count` offsets are below `limit`.
uint64_t OffsetsBelow(uint64_t limit, uint64_t first, uint64_t count) {
  if (count == 0) return 0;
  const absl::uint128 all = SumOfFloors(count, kGoldenSection, first);
  const absl::uint128 others = SumOfFloors(count, kGoldenSection, kOne + first - limit);
  return absl::Uint128Low64(count + all - others);
}

}  // namespace

MixtureOrder::MixtureOrder(const std::vector<double>& weights, uint32_t batch, uint64_t seed)
    : seed_(seed), first_offset_(core::SplitMix(seed).Next()) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double end = 0;
  for (const double weight : weights) {
    end += weight;
    const absl::uint128 scaled = absl::uint128(std::ldexp(end / sum, kBits)) * batch;
    ends_.push_back({.points = absl::Uint128High64(scaled), .offset = absl::Uint128Low64(scaled)});
  }
}

uint64_t MixtureOrder::OffsetOf(uint64_t iteration) const {
  return first_offset_ + iteration * kGoldenSection;
}

std::vector<uint32_t> MixtureOrder::TasksOf(uint64_t iteration) const {
  const uint64_t offset = OffsetOf(iteration);
  std::vector<uint32_t> tasks;
  for (uint32_t task = 0; task < ends_.size(); ++task)
    tasks.resize(ends_[task].points + (offset < ends_[task].offset ? 1 : 0), task);
  Shuffle(core::SplitMix(seed_ + iteration).Next(), tasks);
  return tasks;
}

std::vector<uint64_t> MixtureOrder::TakenBefore(uint64_t iteration) const {
  std::vector<uint64_t> taken;
  uint64_t before = 0;
  for (const End& end : ends_) {
    const uint64_t until = iteration * end.points + OffsetsBelow(end.offset, first_offset_, iteration);
    taken.push_back(until - before);
    before = until;
  }
  return taken;
}

}  // namespace penstock::cli
