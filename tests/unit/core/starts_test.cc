// Starts of the dynamic policy, and the linear pipeline that ideal ones are made from.
#include "planner/core/search/starts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/search/linear_pipeline.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

constexpr int64_t kMuchMemory = int64_t{1} << 40;

// What the search is made with; stays where it is, because the space points into it.
struct Case {
  Case(const v1::JobSpec& spec, int64_t available)
      : job(*JobFromProto(spec)),
        costs(*ProfileFromProto(spec.profile(), job.architecture), job),
        space(costs, job, std::vector<int64_t>(job.topology.shape().positions, available)) {}
  Job job;
  CostModel costs;
  ScheduleSpace space;
};

std::unique_ptr<Case> Strict(uint32_t pipeline, uint32_t data, int64_t available = kMuchMemory) {
  v1::JobSpec spec = GptJob(pipeline, data, v1::POLICY_DYNAMIC);
  spec.mutable_planning()->set_schedule(v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  return std::make_unique<Case>(spec, available);
}

std::vector<SampleTokens> Samples(int count) {
  std::vector<SampleTokens> samples;
  for (int i = 0; i < count; ++i) samples.push_back({0, static_cast<uint32_t>(10 + (i * 37) % 90), 1});
  return samples;
}

TokenSums SumsOfAll(const std::vector<SampleTokens>& samples) {
  TokenSums all;
  for (const SampleTokens& sample : samples) AddPacked(sample, &all);
  return all;
}

TEST(LinearPipeline, MeetsTheCostsOfMicroBatchesOfAnyShare) {
  const auto strict = Strict(4, 1);
  const TokenSums all = SumsOfAll(Samples(64));
  const LinearPipeline pipeline = MakeLinear(strict->space, all, 8);
  for (const double share : {0.03, 0.125, 0.3}) {
    LayerCosts layers;
    ASSERT_TRUE(strict->costs.Layers(ShareOf(all, share), &layers));
    for (int stage = 0; stage < 4; ++stage) {
      // A few nanoseconds of rounding, of which the line through two points makes several.
      EXPECT_NEAR(pipeline.stages[stage].forward(share),
                  static_cast<double>(strict->costs.ForwardNs(stage, layers)), 10);
      EXPECT_NEAR(pipeline.stages[stage].backward(share),
                  static_cast<double>(strict->costs.BackwardNs(stage, layers, StageRecompute())), 10);
    }
  }
}

TEST(LinearPipeline, LargestShareFillsTheMemoryOfTheFirstStage) {
  const TokenSums all = SumsOfAll(Samples(64));
  EXPECT_EQ(MakeLinear(Strict(4, 1)->space, all, 8).largest_share, 1);
  const auto tight = Strict(4, 1, /*available=*/200'000);
  const double largest = MakeLinear(tight->space, all, 8).largest_share;
  ASSERT_LT(largest, 1);
  const StageMemory memory = tight->costs.Memory(0, ShareOf(all, largest));
  const int64_t held = HeldBytes(tight->costs, 0, memory, StageRecompute());
  EXPECT_NEAR(static_cast<double>(4 * held + PassingBytes(memory, TransferBuffers::kOwn)), 200'000, 2'000);
}

// Every sample once.
void ExpectWhole(const Start& start, size_t samples) {
  std::vector<uint32_t> seen;
  for (const auto& group : start.groups) seen.insert(seen.end(), group.begin(), group.end());
  for (const Groups& replica : start.replicas) {
    for (const auto& group : replica) seen.insert(seen.end(), group.begin(), group.end());
  }
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(seen.size(), samples);
  for (uint32_t i = 0; i < samples; ++i) EXPECT_EQ(seen[i], i);
}

TEST(Starts, HaveEverySampleOnce) {
  const auto strict = Strict(4, 2);
  const std::vector<SampleTokens> samples = Samples(60);
  for (const Start& start : MakeStarts(strict->space, strict->job, samples)) ExpectWhole(start, 60);
  const std::vector<Start> near = MakeStartsNear(strict->space, strict->job, samples, 10);
  EXPECT_FALSE(near.empty());
  for (const Start& start : near) ExpectWhole(start, 60);
}

TEST(Starts, NearANumberHaveALittleMoreOrLess) {
  const Case ready(GptJob(4, 1, v1::POLICY_DYNAMIC), kMuchMemory);
  bool more = false;
  bool less = false;
  for (const Start& start : MakeStartsNear(ready.space, ready.job, Samples(60), 10)) {
    const size_t count = start.replicas.empty() ? start.groups.size() : start.replicas[0].size();
    more = more || (count > 10 && count < 13);
    less = less || (count < 10 && count > 7);
    EXPECT_NE(count, 10u);
  }
  EXPECT_TRUE(more);
  EXPECT_TRUE(less);
}

TEST(Starts, FewSamplesOnDeepPipelinesHaveStartsToo) {
  const auto strict = Strict(8, 1);
  for (int count = 1; count < 9; ++count) {
    const std::vector<SampleTokens> samples = Samples(count);
    const std::vector<Start> starts = MakeStarts(strict->space, strict->job, samples);
    EXPECT_FALSE(starts.empty());
    for (const Start& start : starts) ExpectWhole(start, samples.size());
  }
}

}  // namespace
}  // namespace penstock::core
