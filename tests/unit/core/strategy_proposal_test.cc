// The dynamic programme that proposes meshes side by side, beside all ways that there are.
#include "planner/core/strategies/strategy_proposal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kNever = std::numeric_limits<double>::infinity();

// A sample that takes so long on every position, of which `work_ns` is its own and the rest a micro-batch's.
SampleEstimate Sample(double busiest_ns, double work_ns, int positions) {
  return {.fits = true,
          .busiest_ns = busiest_ns,
          .path_ns = busiest_ns * positions,
          .least_alone_ns = busiest_ns * positions,
          .least_work_ns = work_ns};
}

ReplicaKind RandomKind(Random& random, int lengths) {
  ReplicaKind kind = {.ranks = static_cast<int>(random.Range(1, 4)),
                      .positions = static_cast<int>(random.Range(1, 3)),
                      .whole_ns = static_cast<double>(random.Range(0, 20))};
  double work = 5;
  for (int length = 0; length < lengths; ++length) {
    work *= 1 + static_cast<double>(random.Range(20, 300)) / 100;
    const double own = work / (kind.ranks * (0.5 + static_cast<double>(random.Range(0, 50)) / 100));
    kind.of_length.push_back(Sample(own + static_cast<double>(random.Range(0, 10)), own, kind.positions));
    kind.of_length.back().fits = length + 1 < lengths || !random.Chance(30);
  }
  return kind;
}

struct Case {
  std::vector<ReplicaKind> kinds = {};
  std::vector<double> counts = {};
  ProposalLimits limits = {};
};

Case RandomCase(uint64_t seed) {
  Random random(seed);
  const int lengths = static_cast<int>(random.Range(1, 4));
  Case given = {.limits = {.ranks = static_cast<int>(random.Range(1, 9)), .meshes = 3}};
  for (uint32_t kind = 0; kind < random.Range(1, 3); ++kind)
    given.kinds.push_back(RandomKind(random, lengths));
  for (int length = 0; length < lengths; ++length)
    given.counts.push_back(random.Chance(15) ? 0 : static_cast<double>(random.Range(1, 40)) / (length + 1));
  return given;
}

// The least end of all ways to give the lengths from `first` on to `meshes` more meshes with so many ranks.
double LeastEnd(const Case& given, int first, int meshes, int ranks) {
  const int lengths = static_cast<int>(given.counts.size());
  if (meshes == 0) return first == lengths && ranks == 0 ? 0 : kNever;
  double least = kNever;
  for (const ReplicaKind& kind : given.kinds) {
    for (int replicas = 1; replicas * kind.ranks <= ranks; ++replicas) {
      for (int last = first + 1; last <= lengths; ++last) {
        const double rest = LeastEnd(given, last, meshes - 1, ranks - replicas * kind.ranks);
        least = std::min(least, std::max(rest, EndOfReplicas(kind, given.counts, first, last, replicas)));
      }
    }
  }
  return least;
}

int RanksOf(const Case& given, const ProposedStrategy& strategy) {
  int ranks = 0;
  for (const ProposedMesh& mesh : strategy.meshes) ranks += mesh.replicas * given.kinds[mesh.kind].ranks;
  return ranks;
}

TEST(StrategyProposalTest, NoWayToGiveOutRanksAndLengthsEndsSooner) {
  int several = 0, none = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Case given = RandomCase(seed);
    const std::vector<ProposedStrategy> proposed = ProposeStrategies(given.kinds, given.counts, given.limits);
    double least = kNever;
    for (int meshes = 1; meshes <= given.limits.meshes; ++meshes)
      least = std::min(least, LeastEnd(given, 0, meshes, given.limits.ranks));
    if (least == kNever) {
      EXPECT_THAT(proposed, IsEmpty()) << "seed " << seed;
      ++none;
      continue;
    }
    ASSERT_FALSE(proposed.empty()) << "seed " << seed;
    EXPECT_NEAR(proposed.back().end_ns, least, 2e-6 * least) << "seed " << seed;
    double before = kNever;
    for (const ProposedStrategy& strategy : proposed) {
      EXPECT_EQ(RanksOf(given, strategy), given.limits.ranks) << "seed " << seed;
      EXPECT_LT(strategy.end_ns, before) << "seed " << seed;
      before = strategy.end_ns;
    }
    several += proposed.back().meshes.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(several, 25);
  EXPECT_GT(none, 10);
}

// Meshes up to `mesh`, the last of which takes lengths from `first` on: the least end of all cuts.
double LeastOfCuts(const Case& given, const std::vector<ProposedMesh>& meshes, int mesh, int first) {
  const int lengths = static_cast<int>(given.counts.size());
  if (mesh < 0) return first == lengths ? 0 : kNever;
  double least = kNever;
  for (int last = first; last <= lengths; ++last) {
    const double end =
        EndOfReplicas(given.kinds[meshes[mesh].kind], given.counts, first, last, meshes[mesh].replicas);
    least = std::min(least, std::max(end, LeastOfCuts(given, meshes, mesh - 1, last)));
  }
  return least;
}

TEST(StrategyProposalTest, AStrategyEndsAsItsBestCutOfTheLengthsDoes) {
  int held = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Case given = RandomCase(seed);
    std::vector<ProposedMesh> meshes;
    for (int kind = 0; kind < static_cast<int>(given.kinds.size()); ++kind)
      meshes.push_back({.kind = kind, .replicas = 1 + static_cast<int>(seed % 3)});
    const double least = LeastOfCuts(given, meshes, static_cast<int>(meshes.size()) - 1, 0);
    const double end = EndOfStrategy(given.kinds, given.counts, meshes);
    if (least == kNever) {
      EXPECT_EQ(end, kNever) << "seed " << seed;
      continue;
    }
    EXPECT_DOUBLE_EQ(end, least) << "seed " << seed;
    ++held;
  }
  EXPECT_GT(held, 100);
}

// Three long samples, which the first kind alone holds, and many short ones.
Case LongAndShort() {
  ReplicaKind large = {.ranks = 4, .positions = 1, .of_length = {Sample(6, 1, 1), Sample(100, 95, 1)}};
  ReplicaKind small = {.ranks = 1, .positions = 1, .of_length = {Sample(10, 4, 1), Sample(400, 390, 1)}};
  small.of_length[1].fits = false;
  return {.kinds = {large, small}, .counts = {100, 3}, .limits = {.ranks = 8, .meshes = 2}};
}

TEST(StrategyProposalTest, LongSamplesHaveTheMeshThatDividesThem) {
  const Case given = LongAndShort();
  const auto proposed = ProposeStrategies(given.kinds, given.counts, given.limits);
  ASSERT_THAT(proposed, Not(IsEmpty()));
  EXPECT_THAT(proposed.front().meshes, ElementsAre(ProposedMesh{.kind = 0, .replicas = 2}));
}

TEST(StrategyProposalTest, RanksThatOneMeshCannotUseAreSharedByTwo) {
  Case given = LongAndShort();
  given.limits.ranks = 7;
  const auto proposed = ProposeStrategies(given.kinds, given.counts, given.limits);
  ASSERT_THAT(proposed, SizeIs(1));
  EXPECT_THAT(proposed.front().meshes,
              ElementsAre(ProposedMesh{.kind = 0, .replicas = 1}, ProposedMesh{.kind = 1, .replicas = 3}));
}

TEST(StrategyProposalTest, ASampleIsNeverDividedOverReplicas) {
  const ReplicaKind kind = {.ranks = 1, .positions = 1, .of_length = {Sample(100, 100, 1)}};
  EXPECT_DOUBLE_EQ(EndOfReplicas(kind, std::vector<double>{1}, 0, 1, 4), 100);
  EXPECT_DOUBLE_EQ(EndOfReplicas(kind, std::vector<double>{8}, 0, 1, 4), 200);
}

TEST(StrategyProposalTest, ManyRanksAreCountedInStepsAndAllTaken) {
  Case given = LongAndShort();
  given.counts = {20'000, 300};
  for (const int ranks : {1024, 1000, 996}) {
    given.limits.ranks = ranks;
    for (const ProposedStrategy& strategy : ProposeStrategies(given.kinds, given.counts, given.limits))
      EXPECT_EQ(RanksOf(given, strategy), ranks);
  }
}

TEST(StrategyProposalTest, AKindThatHoldsNoMoreAndIsNoFasterIsOfNoUse) {
  const ReplicaKind one = {.ranks = 1, .positions = 1, .of_length = {Sample(10, 8, 1), Sample(80, 78, 1)}};
  // As one replica of two stages: as fast as two of one, but for its ramp.
  const ReplicaKind staged = {.ranks = 2, .positions = 2, .of_length = {Sample(5, 4, 2), Sample(40, 39, 2)}};
  // Divides the long sample.
  const ReplicaKind divides = {.ranks = 2, .positions = 1, .of_length = {Sample(9, 8, 1), Sample(42, 40, 1)}};
  EXPECT_THAT(KindsOfUse({{one, staged, divides}}), ElementsAre(0, 2));
  ReplicaKind small = one;
  small.of_length[1].fits = false;
  EXPECT_THAT(KindsOfUse({{small, staged}}), ElementsAre(0, 1));
}

}  // namespace
}  // namespace penstock::core
