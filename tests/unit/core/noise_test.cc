// Noise of passes: its draws, what plans take under them, and which plan is taken for being steadier.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/planner.h"
#include "planner/core/replay/program_set_of_plan.h"
#include "planner/core/replay/times_under_noise.h"
#include "planner/core/search/steadiest.h"
#include "planner/core/search/steady_orders.h"
#include "planner/core/simulate/simulator.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/golden_jobs.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

constexpr double kNoise = 0.2;

TEST(PassNoiseTest, FactorsHaveMeanOneAndTheDeviationThatIsAskedFor) {
  for (const double deviation : {0.05, 0.2, 1.0}) {
    const PassNoise noise(deviation, 7);
    double mean = 0, logs = 0, squares = 0;
    int count = 0;
    for (int draw = 0; draw < 200; ++draw) {
      const NoiseStream stream = noise.StreamOf(draw, draw % 3, draw % 5);
      for (int micro_batch = 0; micro_batch < 500; ++micro_batch, ++count) {
        const double factor = noise.Factor(stream, micro_batch, PassKind::kForward);
        mean += factor;
        logs += std::log(factor);
        squares += std::log(factor) * std::log(factor);
      }
    }
    logs /= count;
    EXPECT_NEAR(mean / count, 1, 0.02 * deviation) << deviation;
    EXPECT_NEAR(std::sqrt(squares / count - logs * logs), deviation, 0.01 * deviation);
  }
}

TEST(PassNoiseTest, EverySecondDrawMirrorsTheOneBeforeIt) {
  const PassNoise noise(kNoise, 7);
  const double sum = std::log(noise.Factor(noise.StreamOf(4, 0, 1), 3, PassKind::kBackward)) +
                     std::log(noise.Factor(noise.StreamOf(5, 0, 1), 3, PassKind::kBackward));
  // Twice the logarithm by which the mean becomes 1.
  EXPECT_NEAR(sum, -kNoise * kNoise, 0.001);
}

TEST(PassNoiseTest, PassesReplicasStagesAndDrawsHaveFactorsOfTheirOwn) {
  const PassNoise noise(kNoise, 7);
  std::vector<double> factors;
  for (int i = 0; i < 8; ++i) {
    factors.push_back(noise.Factor(noise.StreamOf(2 * i, 0, 0), 0, PassKind::kForward));
    factors.push_back(noise.Factor(noise.StreamOf(0, i + 1, 0), 0, PassKind::kForward));
    factors.push_back(noise.Factor(noise.StreamOf(0, 0, i + 1), 0, PassKind::kForward));
    factors.push_back(noise.Factor(noise.StreamOf(0, 0, 0), i + 1, PassKind::kForward));
  }
  factors.push_back(noise.Factor(noise.StreamOf(0, 0, 0), 0, PassKind::kBackward));
  factors.push_back(noise.Factor(noise.StreamOf(0, 0, 0), 0, PassKind::kBackwardWeight));
  std::ranges::sort(factors);
  // Of 1,024 quantiles two may well be the same.
  // Not std::ranges::unique, whose subrange clang 14 cannot compile with this standard library.
  const auto distinct = std::unique(factors.begin(), factors.end());
  EXPECT_LE(std::distance(distinct, factors.end()), 3);
  // A backward pass has its factor whether it is whole or not.
  const NoiseStream stream = noise.StreamOf(0, 0, 0);
  EXPECT_EQ(noise.Factor(stream, 0, PassKind::kBackward), noise.Factor(stream, 0, PassKind::kBackwardInput));
}

TEST(MeanOfLongestTest, IsTheMeanOfOneAndTheMoreOfTheLongOnesTheMoreReplicasThereAre) {
  std::vector<int64_t> makespans = {30, 10, 20, 40};
  EXPECT_DOUBLE_EQ(MeanOfLongest(1, absl::MakeSpan(makespans)), 25);
  // Of the 16 pairs, 1 has the longest at 10, 3 at 20, 5 at 30 and 7 at 40.
  EXPECT_DOUBLE_EQ(MeanOfLongest(2, absl::MakeSpan(makespans)), (10 + 3 * 20 + 5 * 30 + 7 * 40) / 16.0);
}

// Samples, and what searches are made with; stays where it is.
struct NoisyCase {
  NoisyCase(uint32_t pipeline, uint32_t data, int samples)
      : spec(GptJob(pipeline, data, v1::POLICY_DYNAMIC)) {
    spec.mutable_profile()->set_pass_noise(kNoise);
    job = *JobFromProto(spec);
    costs = std::make_unique<CostModel>(*ProfileFromProto(spec.profile(), job.architecture), job);
    space = std::make_unique<ScheduleSpace>(*costs, job, AvailableBytes(job, *costs));
    for (int i = 0; i < samples; ++i) tokens.push_back({0, static_cast<uint32_t>(20 + (i * 37) % 90), 10});
  }

  // Groups of so many samples, in order.
  Candidate Divided(int size) const {
    Candidate candidate = MakeCandidate(
        *space, tokens, FixedSizeGroups(static_cast<int>(tokens.size()), size), Layout::kPacked);
    ReplicaEvaluator evaluator(*space);
    Evaluate(&evaluator, &candidate);
    return candidate;
  }

  v1::JobSpec spec;
  Job job;
  std::unique_ptr<CostModel> costs;
  std::unique_ptr<ScheduleSpace> space;
  std::vector<SampleTokens> tokens;
};

// What a replica takes in a draw, by the rules of execution alone: each pass begins when its rank and its
// input are there. Of jobs whose transfers take nothing.
int64_t NaiveMakespan(const NoisyCase& given, const Candidate& candidate, int replica, const PassNoise& noise,
                      int draw) {
  const int stages = given.costs->stages();
  const std::vector<int32_t>& slots = candidate.replicas[replica].slots;
  std::vector<std::vector<int64_t>> forward(slots.size(), std::vector<int64_t>(stages, 0)),
      backward = forward;
  std::vector<int64_t> free(stages, 0);
  for (const Pass& pass : candidate.orders[replica]) {
    const auto value = [&](MicroBatchTable::Field field) {
      return candidate.table.field(field)[candidate.table.offset(slots[pass.micro_batch]) + pass.stage];
    };
    const int m = pass.micro_batch, s = pass.stage;
    int64_t ready = 0, ns = 0;
    switch (pass.kind) {
      case PassKind::kForward:
        ready = s > 0 ? forward[m][s - 1] : 0;
        ns = value(MicroBatchTable::kForwardNs);
        break;
      case PassKind::kBackward:
        ready = s + 1 < stages ? backward[m][s + 1] : 0;
        ns = value(MicroBatchTable::kBackwardNs);
        break;
      case PassKind::kBackwardInput:
        ready = s + 1 < stages ? backward[m][s + 1] : 0;
        ns = value(MicroBatchTable::kBackwardNs) - value(MicroBatchTable::kWeightNs);
        break;
      case PassKind::kBackwardWeight:
        ns = value(MicroBatchTable::kWeightNs);
        break;
    }
    const double factor = noise.Factor(noise.StreamOf(draw, replica, s), m, pass.kind);
    free[s] = std::max(free[s], ready) + std::llround(static_cast<double>(ns) * factor);
    if (pass.kind == PassKind::kForward) forward[m][s] = free[s];
    if (pass.kind == PassKind::kBackward || pass.kind == PassKind::kBackwardInput) backward[m][s] = free[s];
  }
  int64_t end = 0;
  for (int s = 0; s < stages; ++s)
    end = std::max(end, free[s] + given.space->reduce_ns()[s] + given.space->optimizer_ns()[s]);
  return end;
}

double NaiveMean(const NoisyCase& given, const Candidate& candidate, const PassNoise& noise, int draws) {
  double sum = 0;
  for (int draw = 0; draw < draws; ++draw) {
    int64_t longest = 0;
    for (size_t replica = 0; replica < candidate.replicas.size(); ++replica)
      longest = std::max(longest, NaiveMakespan(given, candidate, static_cast<int>(replica), noise, draw));
    sum += static_cast<double>(longest);
  }
  return sum / draws;
}

NoisyCase WithFreeTransfers(uint32_t pipeline, uint32_t data, int samples) {
  NoisyCase given(pipeline, data, samples);
  v1::Cluster& cluster = *given.spec.mutable_profile()->mutable_cluster();
  cluster.set_intra_node_bytes_per_second(1e21);
  cluster.set_inter_node_bytes_per_second(1e21);
  cluster.set_intra_node_latency_ns(0);
  cluster.set_inter_node_latency_ns(0);
  given.costs =
      std::make_unique<CostModel>(*ProfileFromProto(given.spec.profile(), given.job.architecture), given.job);
  given.space =
      std::make_unique<ScheduleSpace>(*given.costs, given.job, AvailableBytes(given.job, *given.costs));
  return given;
}

TEST(SteadiestTest, MeansAreThoseOfPassesThatRunAsTheRulesSay) {
  for (const auto& [pipeline, replicas] : {std::pair(1, 1), std::pair(2, 2), std::pair(4, 1)}) {
    const NoisyCase given = WithFreeTransfers(pipeline, replicas, 24);
    for (const int size : {1, 3, 6}) {
      const Candidate candidate = given.Divided(size);
      const PassNoise noise(kNoise, NoiseSeed(given.tokens));
      ReplicaEvaluator evaluator(*given.space);
      EXPECT_NEAR(MeanUnderNoise(candidate, noise, 16, &evaluator), NaiveMean(given, candidate, noise, 16), 1)
          << pipeline << " stages, " << replicas << " replicas, " << size << " samples each";
    }
  }
}

// Whole micro-batches beside many small ones that take as long: the sum of many passes spreads less, and the
// longer of two replicas is less long.
TEST(SteadiestTest, OfTwoThatTakeAsLongTheLessSpreadOneIsTaken) {
  NoisyCase given(1, 2, 32);
  for (v1::LayerCost& layer : *given.spec.mutable_profile()->mutable_layers())
    layer.mutable_forward()->set_fixed_ns(0);
  for (SampleTokens& sample : given.tokens) sample.target = 50;
  given.costs =
      std::make_unique<CostModel>(*ProfileFromProto(given.spec.profile(), given.job.architecture), given.job);
  given.space =
      std::make_unique<ScheduleSpace>(*given.costs, given.job, AvailableBytes(given.job, *given.costs));
  for (const bool small_first : {false, true}) {
    std::vector<Candidate> candidates;
    candidates.push_back(given.Divided(small_first ? 1 : 16));
    candidates.push_back(given.Divided(small_first ? 16 : 1));
    const PassNoise noise(kNoise, NoiseSeed(given.tokens));
    ReplicaEvaluator evaluator(*given.space);
    const Candidate& large = candidates[small_first ? 1 : 0];
    const Candidate& small = candidates[small_first ? 0 : 1];
    ASSERT_NEAR(static_cast<double>(large.makespan), static_cast<double>(small.makespan),
                0.009 * static_cast<double>(small.makespan));
    EXPECT_LT(MeanUnderNoise(small, noise, 64, &evaluator), MeanUnderNoise(large, noise, 64, &evaluator));
    const Candidate taken = TakeSteadiest(*given.space, noise, std::move(candidates), RunSerially);
    EXPECT_EQ(taken.replicas[0].slots.size(), 16U);
  }
}

// All of three are judged in as many draws, so that the answer must be the least of what the rules give.
TEST(SteadiestTest, TheBestOfTheCandidatesUnderTheSameDrawsIsTaken) {
  for (int samples = 12; samples <= 60; samples += 4) {
    const NoisyCase given = WithFreeTransfers(2, 2, samples);
    const PassNoise noise(kNoise, NoiseSeed(given.tokens));
    std::vector<Candidate> candidates;
    for (const int size : {2, 3, 4}) candidates.push_back(given.Divided(size));
    const int64_t fastest = std::ranges::min(candidates, {}, &Candidate::makespan).makespan;
    double least = 0;
    for (const Candidate& candidate : candidates) {
      if (static_cast<double>(candidate.makespan) > kAboutAsLong * static_cast<double>(fastest)) continue;
      const double mean = NaiveMean(given, candidate, noise, 32);
      least = least == 0 ? mean : std::min(least, mean);
    }
    const Candidate taken = TakeSteadiest(*given.space, noise, std::move(candidates), RunSerially);
    EXPECT_LE(static_cast<double>(taken.makespan), kAboutAsLong * static_cast<double>(fastest));
    EXPECT_NEAR(NaiveMean(given, taken, noise, 32), least, 1) << samples;
    EXPECT_EQ(taken.fastest, fastest);
  }
}

TEST(SteadyOrdersTest, KeepTheMicroBatchesAndTheLimit) {
  for (int samples = 16; samples <= 64; samples += 8) {
    const NoisyCase given(4, 2, samples);
    Candidate candidate = given.Divided(2);
    const int64_t exact = candidate.makespan;
    const std::vector<CandidateReplica> replicas = candidate.replicas;
    ReplicaEvaluator evaluator(*given.space);
    SteadyOrders(*given.space, NoiseSeed(given.tokens), RunSerially, &candidate);
    EXPECT_LE(static_cast<double>(candidate.makespan), kAboutAsLong * static_cast<double>(exact));
    for (size_t replica = 0; replica < replicas.size(); ++replica) {
      EXPECT_EQ(candidate.replicas[replica].slots, replicas[replica].slots);
      EXPECT_EQ(evaluator.Replay(candidate.table, replicas[replica].slots, candidate.orders[replica],
                                 static_cast<int>(replica)),
                candidate.replicas[replica].makespan);
    }
  }
}

// Lengths with a long tail, as training has them.
v1::Batch SkewedBatch(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (int i = 0; i < 48; ++i)
    lengths.emplace_back(random() % 20,
                         1 + static_cast<uint32_t>(std::exp2(static_cast<double>(random() % 90) / 10)));
  v1::Batch batch = MakeBatch(lengths);
  batch.set_iteration(seed);
  return batch;
}

TEST(NoisyPlanTest, IterationsTakeLessInTheMeanUnderDrawsThatNobodyHasChosenBy) {
  v1::JobSpec job = GptJob(4, 2, v1::POLICY_DYNAMIC);
  const auto exact = Planner::Create(job);
  job.mutable_profile()->set_pass_noise(kNoise);
  const auto steady = Planner::Create(job);
  ASSERT_TRUE(exact.ok() && steady.ok());
  double of_exact = 0, of_steady = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    const v1::Batch batch = SkewedBatch(i);
    of_exact += RunUnderNoise(*(*exact)->MakePlan(batch), kNoise, 1000 + i, 128)->mean_ns;
    of_steady += RunUnderNoise(*(*steady)->MakePlan(batch), kNoise, 1000 + i, 128)->mean_ns;
  }
  EXPECT_LT(of_steady, of_exact);
}

// Of stage groups, several stages a rank, every policy and schedule: a plan that the checker passes.
TEST(NoisyPlanTest, PlansForNoiseKeepAllRulesAndAreAboutAsFast) {
  int different = 0;
  for (const GoldenJob& golden : JobsToRepeat()) {
    v1::JobSpec job = golden.given.job;
    const auto exact = (*Planner::Create(job))->MakePlan(golden.given.batch);
    job.mutable_profile()->set_pass_noise(kNoise);
    const auto planner = Planner::Create(job);
    ASSERT_TRUE(exact.ok() && planner.ok()) << golden.name << planner.status();
    const auto plan = (*planner)->MakePlan(golden.given.batch);
    ASSERT_TRUE(plan.ok()) << golden.name << plan.status();
    EXPECT_TRUE(CheckPlan(golden.given.batch, *plan).empty()) << golden.name;
    // Where memory is short, what fits may take longer by more than is chosen for.
    EXPECT_LE(static_cast<double>(plan->predicted().makespan_ns()),
              1.02 * static_cast<double>(exact->predicted().makespan_ns()))
        << golden.name;
    if (plan->predicted().makespan_ns() != exact->predicted().makespan_ns()) ++different;
  }
  EXPECT_GT(different, 0);
}

TEST(RunUnderNoiseTest, WithHardlyAnyNoiseAPlanTakesWhatItSays) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < 24; ++i) lengths.emplace_back(i % 7, 10 + (i * 29) % 60);
  const v1::Plan plan = *(*Planner::Create(job))->MakePlan(MakeBatch(lengths));
  const auto makespan = static_cast<double>(plan.predicted().makespan_ns());
  const auto still = RunUnderNoise(plan, 1e-9, 1, 4);
  ASSERT_TRUE(still.ok()) << still.status();
  EXPECT_NEAR(still->mean_ns, makespan, 50);
  const auto noisy = RunUnderNoise(plan, kNoise, 1, 256);
  ASSERT_TRUE(noisy.ok()) << noisy.status();
  EXPECT_GT(noisy->mean_ns, makespan);
  EXPECT_GT(noisy->late_ns, noisy->mean_ns);
  const auto again = RunUnderNoise(plan, kNoise, 1, 256);
  EXPECT_EQ(again->mean_ns, noisy->mean_ns);
}

}  // namespace
}  // namespace penstock::core
