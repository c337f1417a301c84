// The proposal beside all ways that there are, and what the two stages owe to every batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "tests/bench/strategies/hydraulis/assignment.h"
#include "tests/bench/strategies/hydraulis/proposal.h"
#include "tests/bench/strategies/hydraulis/scheme_space.h"
#include "tests/unit/core/random_job.h"

namespace penstock::hydraulis {
namespace {

using core::Random;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int64_t kStep = 1024;

Scheme RandomScheme(Random& random, int64_t longest) {
  const int tensor = 1 << random.Range(0, 2), pipeline = 1 << random.Range(0, 2);
  return {.tensor = tensor,
          .pipeline = pipeline,
          .square_ns = random.Range(1, 9) / 1e3 / tensor,
          .token_ns = static_cast<double>(random.Range(10, 100)) / tensor,
          .once_ns = static_cast<double>(random.Range(0, 50'000)),
          .most_tokens = random.Range(1, 6) * longest / 4};
}

std::vector<Scheme> RandomSchemes(Random& random, int64_t longest) {
  std::vector<Scheme> schemes;
  for (uint32_t i = 0; i < random.Range(1, 3); ++i) schemes.push_back(RandomScheme(random, longest));
  return schemes;
}

// What a group of replicas takes for the lengths in (low, high].
double GroupNs(const Scheme& scheme, int replicas, const std::vector<LengthCount>& counts, int64_t low,
               int64_t high, bool whole_samples) {
  if (scheme.most_tokens / kStep * kStep < high) return kNever;
  double sum = 0, longest = 0;
  for (const LengthCount& length : counts) {
    if (length.tokens <= low || length.tokens > high || length.count == 0) continue;
    sum += length.count * scheme.AloneNs(length.tokens);
    longest = scheme.AloneNs(length.tokens);
  }
  const double divided = (sum + (scheme.pipeline - 1) * longest) / replicas;
  return whole_samples ? std::max(divided, scheme.pipeline * longest) : divided;
}

// By trying every group for the longest lengths that are left.
double BruteForceNs(const std::vector<Scheme>& schemes, const std::vector<LengthCount>& counts, int ranks,
                    int64_t longest, bool whole_samples) {
  if (longest <= 0) return 0;
  double least = kNever;
  for (const Scheme& scheme : schemes) {
    for (int replicas = 1; replicas * scheme.ranks() <= ranks; ++replicas) {
      for (int64_t low = 0; low < longest; low += kStep) {
        const double others =
            BruteForceNs(schemes, counts, ranks - replicas * scheme.ranks(), low, whole_samples);
        least =
            std::min(least, std::max(others, GroupNs(scheme, replicas, counts, low, longest, whole_samples)));
      }
    }
  }
  return least;
}

TEST(HydraulisProposalTest, IsAsGoodAsAllWaysOfGivingOutRanksAndLengths) {
  int possible = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const int64_t longest = kStep * random.Range(1, 4);
    const int ranks = static_cast<int>(random.Range(1, 10));
    const std::vector<Scheme> schemes = RandomSchemes(random, longest);
    const bool whole_samples = random.Chance(50);
    std::vector<LengthCount> counts;
    for (int64_t tokens = 300; tokens <= longest; tokens += random.Range(200, 900))
      counts.push_back({tokens, random.Range(0, 8) / 2.0});
    const double expected = BruteForceNs(schemes, counts, ranks, longest, whole_samples);
    const double found =
        LeastNs(schemes, counts, {.ranks = ranks, .longest = longest, .whole_samples = whole_samples});
    if (expected == kNever) {
      EXPECT_EQ(found, kNever) << "seed " << seed;
      continue;
    }
    ++possible;
    EXPECT_NEAR(found, expected, 1e-9 * expected) << "seed " << seed;
  }
  EXPECT_GT(possible, 80);
}

TEST(HydraulisProposalTest, UsesEveryRankThatAReplicaFitsInto) {
  const std::vector<Scheme> schemes = {{.tensor = 4, .token_ns = 10, .most_tokens = 4096},
                                       {.tensor = 1, .token_ns = 30, .most_tokens = 1024}};
  const std::vector<LengthCount> counts = {{1000, 8}, {4000, 1}};
  for (const Mix& mix : Propose(schemes, counts, {.ranks = 11, .longest = 4096})) {
    int ranks = 0, smallest = 11;
    for (const ReplicaGroup& group : mix) {
      ranks += group.replicas * schemes[group.scheme].ranks();
      smallest = std::min(smallest, schemes[group.scheme].ranks());
    }
    EXPECT_LE(ranks, 11);
    EXPECT_GT(ranks + smallest, 11);
  }
}

TEST(HydraulisProposalTest, PutsLongSamplesOnLargeReplicasAndShortOnesOnSmall) {
  // Two tensor ranks are less than twice as fast, but alone can hold the long sample.
  const std::vector<Scheme> schemes = {{.tensor = 2, .token_ns = 9, .most_tokens = 4096},
                                       {.tensor = 1, .token_ns = 10, .most_tokens = 1024}};
  const std::vector<LengthCount> counts = {{1000, 12}, {4000, 1}};
  const std::vector<Mix> mixes = Propose(schemes, counts, {.ranks = 6, .longest = 4096});
  EXPECT_THAT(mixes, testing::Contains(Mix{{0, 1}, {1, 4}}));
}

TEST(HydraulisAssignmentTest, EverySampleIsInOneMicroBatchAndNoneIsAboveTheMostTokens) {
  int held = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const int64_t longest = 8192;
    const std::vector<Scheme> schemes = RandomSchemes(random, longest);
    Mix mix;
    for (int scheme = 0; scheme < static_cast<int>(schemes.size()); ++scheme)
      mix.push_back({scheme, static_cast<int>(random.Range(1, 3))});
    std::vector<int64_t> lengths;
    for (uint32_t i = 0; i < random.Range(1, 60); ++i)
      lengths.push_back(random.Range(1, random.Chance(20) ? 8192 : 1024));
    const std::optional<AssignedBatch> assigned = Assign(schemes, mix, lengths);
    if (!assigned.has_value()) continue;
    ++held;
    std::vector<int> times(lengths.size(), 0);
    size_t replica = 0;
    for (const ReplicaGroup& group : mix) {
      for (int i = 0; i < group.replicas; ++i, ++replica) {
        for (const std::vector<uint32_t>& micro_batch : assigned->replicas[replica].micro_batches) {
          int64_t tokens = 0;
          for (const uint32_t sample : micro_batch) {
            ++times[sample];
            tokens += lengths[sample];
          }
          EXPECT_LE(tokens, schemes[group.scheme].most_tokens) << "seed " << seed;
          EXPECT_FALSE(micro_batch.empty()) << "seed " << seed;
        }
      }
    }
    EXPECT_EQ(replica, assigned->replicas.size());
    EXPECT_THAT(times, testing::Each(1)) << "seed " << seed;
  }
  EXPECT_GT(held, 100);
}

TEST(HydraulisAssignmentTest, ABatchThatNoReplicaCanHoldHasNoAssignment) {
  const std::vector<Scheme> schemes = {{.token_ns = 1, .most_tokens = 1024}};
  EXPECT_EQ(Assign(schemes, {{0, 4}}, std::vector<int64_t>{100, 1025}), std::nullopt);
}

TEST(HydraulisAssignmentTest, AReplicaOfManyStagesGetsLessThanOneThatHasNoRamp) {
  const Scheme flat = {.token_ns = 1, .most_tokens = 4096};
  const Scheme deep = {.pipeline = 4, .token_ns = 1, .most_tokens = 4096};
  const std::vector<const Scheme*> replicas = {&flat, &deep};
  const std::vector<int64_t> lengths(20, 1000);
  const std::vector<int> replica_of_sample = Dispatch(replicas, lengths);
  // At best 12 beside 8 with a ramp of three more, or 11 beside 9.
  EXPECT_GE(std::ranges::count(replica_of_sample, 0), 11);
  EXPECT_DOUBLE_EQ(DispatchedNs(replicas, lengths, replica_of_sample), 12'000);
}

TEST(HydraulisPackingTest, ImprovesOnLongestFirst) {
  const Scheme scheme = {.token_ns = 1, .most_tokens = 100};
  // Longest first alone has 8 + 5 + 4 beside 7 + 6.
  const std::vector<int64_t> lengths = {8, 7, 6, 5, 4};
  const std::vector<uint32_t> samples = {0, 1, 2, 3, 4};
  const std::optional<MicroBatches> packed = Pack(scheme, lengths, samples, 2);
  ASSERT_TRUE(packed.has_value());
  int64_t most = 0;
  for (const std::vector<uint32_t>& micro_batch : *packed) {
    int64_t tokens = 0;
    for (const uint32_t sample : micro_batch) tokens += lengths[sample];
    most = std::max(most, tokens);
  }
  EXPECT_LE(most, 16);
}

TEST(HydraulisCostsTest, AFitToAQuadraticIsThatQuadratic) {
  std::vector<double> lengths, ns;
  for (double s = 256; s <= 32768; s *= 1.5) {
    lengths.push_back(std::round(s));
    ns.push_back(2e-3 * lengths.back() * lengths.back() + 140 * lengths.back() + 120'000);
  }
  FittedScheme fitted;
  FitCosts(lengths, ns, &fitted);
  EXPECT_NEAR(fitted.scheme.square_ns, 2e-3, 1e-8);
  EXPECT_NEAR(fitted.scheme.token_ns, 140, 1e-4);
  EXPECT_NEAR(fitted.scheme.once_ns, 120'000, 1);
  EXPECT_LT(fitted.worst_relative_error, 1e-9);
}

}  // namespace
}  // namespace penstock::hydraulis
