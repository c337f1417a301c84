// What all micro-batches of a size take, against making all of them.
#include "planner/core/foresee/work_of_size.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/planner.h"
#include "planner/core/search/candidate.h"
#include "planner/core/search/tune_rules.h"
#include "tests/bench/bench_job.h"
#include "tests/bench/drawn_lengths.h"

namespace penstock::core {
namespace {

constexpr int kSamples = 700;

class WorkOfSizeTest : public testing::TestWithParam<Layout> {
 protected:
  WorkOfSizeTest()
      : planner_(*Planner::Create(BenchJob(/*stages=*/4, /*replicas=*/1, v1::POLICY_PADDING))),
        space_(planner_->costs(), planner_->job(), AvailableBytes(planner_->job(), planner_->costs())) {}

  // Padded ones of another distribution for each seed; packed ones are asked for where lengths are about
  // even.
  std::vector<SampleTokens> Draw(uint64_t seed) const {
    v1::Batch batch = DrawnBatch(seed, kSamples);
    if (GetParam() == Layout::kPacked) {
      for (v1::Sample& sample : *batch.mutable_samples())
        sample.set_target_tokens(1000 + sample.target_tokens() % 100);
    }
    return BatchFromProto(batch, planner_->job())->samples;
  }

  Candidate All(absl::Span<const SampleTokens> tokens, int size) const {
    return MakeCandidate(space_, tokens, FixedSizeGroups(static_cast<int>(tokens.size()), size), GetParam());
  }

  const std::unique_ptr<Planner> planner_;
  const ScheduleSpace space_;
};

TEST_P(WorkOfSizeTest, IsThatOfAllOfThem) {
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    const std::vector<SampleTokens> tokens = Draw(seed);
    for (const int size : {1, 2, 5}) {
      WorkOfSize work(space_, tokens, size, GetParam());
      const Candidate all = All(tokens, size);
      EXPECT_DOUBLE_EQ(work.micro_batches(), static_cast<double>(kSamples) / size);
      const absl::Span<const int32_t> levels = all.table.levels(0);
      const double truth = BusiestNs(all.table);
      EXPECT_NEAR(work.BusiestAt(levels) / truth, 1, 2e-3) << "seed " << seed << ", size " << size;
    }
  }
}

TEST_P(WorkOfSizeTest, NoScheduleIsShorter) {
  ReplicaEvaluator evaluator(space_);
  for (const uint64_t seed : {1, 2, 3}) {
    const std::vector<SampleTokens> tokens = Draw(seed);
    for (const int size : {1, 2, 5}) {
      Candidate all = All(tokens, size);
      Evaluate(&evaluator, &all);
      TuneRules(&evaluator, &all);
      const double least = WorkOfSize(space_, tokens, size, GetParam()).LeastNs(/*replicas=*/1);
      EXPECT_LE(least, 1.002 * static_cast<double>(all.makespan)) << "seed " << seed << ", size " << size;
      EXPECT_GE(least, 0.5 * static_cast<double>(all.makespan)) << "seed " << seed << ", size " << size;
    }
  }
}

TEST_P(WorkOfSizeTest, ReplicasShareTheWork) {
  const std::vector<SampleTokens> tokens = Draw(1);
  const WorkOfSize work(space_, tokens, 2, GetParam());
  EXPECT_LT(work.LeastNs(2), work.LeastNs(1));
  EXPECT_GT(work.LeastNs(2), work.LeastNs(1) / 2);
}

INSTANTIATE_TEST_SUITE_P(Layouts, WorkOfSizeTest, testing::Values(Layout::kPadded, Layout::kPacked));

}  // namespace
}  // namespace penstock::core
