// Plans whose parts begin inside of rows that context ranks divide: long samples, of which a micro-batch has
// one or a few.
//
// PENSTOCK_RANDOM_JOBS=N looks at N jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/process/sanitized.h"
#include "planner/core/audit/audit_plan.h"
#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/support/environment.h"
#include "tests/unit/core/has_parts.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

using ::testing::HasSubstr;

constexpr int kLongJobs = kSanitized ? 60 : 250;

// Ranks that divide experts and rows, whose rows for experts take about as long as a layer; copies take next
// to nothing. One to three long samples, and sometimes short ones.
RandomPlanningCase LongCase(int seed) {
  RandomJobLimits limits;
  limits.context = 8;
  limits.expert_percent = 100;
  limits.dense_percent = 30;
  limits.uneven_percent = 30;
  limits.pipeline = 2;
  limits.replicas = 2;
  limits.windows_percent = 25;
  limits.backward_forms_percent = 25;
  RandomPlanningCase given = MakeRandomCase(8000000 + seed, limits);
  Random random(seed);
  v1::Cluster* const cluster = given.job.mutable_profile()->mutable_cluster();
  cluster->set_exchange_overlap(0.01 * random.Range(50, 100));
  const double bandwidth = 1e6 * static_cast<double>(1 << random.Range(7, 13));
  cluster->set_intra_node_collective_bytes_per_second(bandwidth);
  cluster->set_inter_node_collective_bytes_per_second(bandwidth);
  cluster->set_copy_bytes_per_second(1e12);
  given.job.mutable_model()->set_max_sequence_length(4096);
  given.batch.clear_samples();
  const auto add = [&](uint32_t tokens) {
    v1::Sample* const sample = given.batch.add_samples();
    sample->set_sample_id(static_cast<uint64_t>(given.batch.samples_size()));
    sample->set_input_tokens(random.Range(0, tokens / 2));
    sample->set_target_tokens(tokens - sample->input_tokens());
  };
  const uint32_t samples = random.Range(1, 3) * given.job.mesh().data();
  for (uint32_t i = 0; i < samples; ++i) add(random.Range(300, 4000));
  if (random.Chance(50))
    for (uint32_t i = random.Range(1, 10); i > 0; --i) add(random.Range(2, 200));
  return given;
}

class PlansWithCutRowsTest : public testing::Test {
 protected:
  // Empty where the job, or the batch, cannot be planned.
  static v1::Plan PlanOf(const RandomPlanningCase& given) {
    const auto planner = Planner::Create(given.job);
    if (!planner.ok()) return {};
    auto plan = (*planner)->MakePlan(given.batch);
    return plan.ok() ? *std::move(plan) : v1::Plan();
  }
};

TEST_F(PlansWithCutRowsTest, AreSoundAndNoLongerThanWithoutParts) {
  const int count = FromEnvironment("PENSTOCK_RANDOM_JOBS", kLongJobs);
  int planned = 0, alone = 0;
  std::vector<double> ratios;
  for (int seed = 0; seed < count && !HasFailure(); ++seed) {
    RandomPlanningCase given = LongCase(seed);
    if (given.job.mesh().expert() < 2) continue;
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", given.Describe()));
    const v1::Plan plan = PlanOf(given);
    if (plan.programs().empty()) continue;
    ++planned;
    if (!HasCutRows(plan)) continue;
    EXPECT_LE(plan.lower_bound_ns(), plan.predicted().makespan_ns());
    for (const Violation& violation : CheckPlan(given.batch, plan))
      ADD_FAILURE() << "rule " << violation.rule << ": " << violation.message;
    const auto audited = AuditPlan(given.batch, plan, given.job.profile());
    ASSERT_TRUE(audited.ok()) << audited.status();
    for (const Violation& violation : *audited)
      ADD_FAILURE() << "rule " << violation.rule << ": " << violation.message;
    for (const v1::Replica& replica : plan.replicas())
      for (const v1::MicroBatch& micro_batch : replica.micro_batches())
        if (!micro_batch.part_chunks().empty() && micro_batch.samples_size() == 1) ++alone;
    given.job.mutable_planning()->set_most_parts(1);
    const v1::Plan whole = PlanOf(given);
    ASSERT_FALSE(HasParts(whole));
    ratios.push_back(static_cast<double>(plan.predicted().makespan_ns()) /
                     static_cast<double>(whole.predicted().makespan_ns()));
  }
  ASSERT_FALSE(ratios.empty());
  std::sort(ratios.begin(), ratios.end());
  std::cout << planned << " plans, " << ratios.size() << " with rows that are cut, " << alone
            << " of them lone samples; beside whole ones: best " << ratios.front() << ", median "
            << ratios[ratios.size() / 2] << ", worst " << ratios.back() << "\n";
  EXPECT_GT(alone, 0);
  EXPECT_LT(ratios[ratios.size() / 2], 1);
  EXPECT_LE(ratios.back(), 1);
}

TEST_F(PlansWithCutRowsTest, AreNotOfExpertsWithACapacity) {
  int looked_at = 0;
  for (int seed = 0; seed < kLongJobs && looked_at < 5; ++seed) {
    RandomPlanningCase given = LongCase(seed);
    if (given.job.mesh().expert() < 2 || !HasCutRows(PlanOf(given))) continue;
    ++looked_at;
    given.job.mutable_model()->set_expert_capacity_factor(1.25);
    EXPECT_FALSE(HasCutRows(PlanOf(given))) << "seed " << seed;
  }
  EXPECT_EQ(looked_at, 5);
}

// A plan with a row that is cut, damaged in one place.
class DamagedCutRowsTest : public PlansWithCutRowsTest {
 protected:
  void SetUp() override {
    for (int seed = 0; cut_ == nullptr && seed < kLongJobs; ++seed) {
      given_ = LongCase(seed);
      if (given_.job.mesh().expert() < 2) continue;
      plan_ = PlanOf(given_);
      for (v1::Replica& replica : *plan_.mutable_replicas())
        for (v1::MicroBatch& micro_batch : *replica.mutable_micro_batches())
          if (!micro_batch.part_chunks().empty()) cut_ = &micro_batch;
    }
    ASSERT_NE(cut_, nullptr);
    while (cut_->part_chunks(part_) == 0) ++part_;
  }

  void ExpectViolation(const std::string& text) {
    EXPECT_THAT(CheckPlan(given_.batch, plan_),
                testing::Contains(testing::AllOf(testing::Field(&Violation::rule, 7),
                                                 testing::Field(&Violation::message, HasSubstr(text)))));
  }

  RandomPlanningCase given_;
  v1::Plan plan_;
  v1::MicroBatch* cut_ = nullptr;
  // The first that begins inside of a row.
  int part_ = 0;
};

TEST_F(DamagedCutRowsTest, AChunkThatTheRowHasNot) {
  const uint32_t chunks = 2 * cut_->part_chunks(part_);
  cut_->set_part_chunks(part_, chunks);
  ExpectViolation(absl::StrCat("part ", part_, " begins with chunk ", chunks, " of row ",
                               cut_->part_rows(part_), ", which has ", chunks));
}

TEST_F(DamagedCutRowsTest, ARowThatIsNotDivided) {
  cut_->set_span_ranks(static_cast<int>(cut_->part_rows(part_)), 1);
  ExpectViolation("which is not divided");
}

TEST_F(DamagedCutRowsTest, TheFirstPartBeginsInsideOfARow) {
  cut_->set_part_chunks(0, 1);
  ExpectViolation("part_chunks begins with 1 and ends with 0");
}

TEST_F(DamagedCutRowsTest, APartHasNoChunk) {
  // The next one begins where it does.
  const std::vector<uint32_t> rows(cut_->part_rows().begin(), cut_->part_rows().end());
  const std::vector<uint32_t> chunks(cut_->part_chunks().begin(), cut_->part_chunks().end());
  cut_->clear_part_rows();
  cut_->clear_part_chunks();
  for (size_t part = 0; part < rows.size(); ++part) {
    for (int times = part == static_cast<size_t>(part_) ? 2 : 1; times > 0; --times) {
      cut_->add_part_rows(rows[part]);
      cut_->add_part_chunks(chunks[part]);
    }
  }
  ExpectViolation("no part is without a chunk");
}

TEST_F(DamagedCutRowsTest, ChunksThatAreNotOnesOfPartRows) {
  cut_->add_part_chunks(0);
  ExpectViolation(absl::StrCat("part_chunks is set, but it has ", cut_->part_chunks_size(), " entries for ",
                               cut_->part_rows_size(), " of part_rows"));
  cut_->clear_part_rows();
  cut_->set_whole_backward(false);
  ExpectViolation("part_chunks is set, but it has no part_rows");
}

TEST_F(DamagedCutRowsTest, BackwardPassesGoInParts) {
  cut_->set_whole_backward(false);
  ExpectViolation("part_chunks is set, but whole_backward is not");
}

TEST_F(DamagedCutRowsTest, ExpertsHaveACapacity) {
  plan_.mutable_model()->set_expert_capacity_factor(1.25);
  ExpectViolation("part_chunks is set, but experts have a capacity");
}

TEST_F(DamagedCutRowsTest, NoRowIsCut) {
  for (uint32_t& chunk : *cut_->mutable_part_chunks()) chunk = 0;
  ExpectViolation("part_chunks is set, but no row is cut");
}

TEST_F(DamagedCutRowsTest, AnotherChunkIsWhatOtherPartsCost) {
  cut_->set_part_chunks(part_, cut_->part_chunks(part_) + 1);
  const auto audited = AuditPlan(given_.batch, plan_, given_.job.profile());
  ASSERT_TRUE(audited.ok()) << audited.status();
  EXPECT_THAT(*audited, testing::Contains(testing::Field(&Violation::message, HasSubstr("exchange."))));
}

}  // namespace
}  // namespace penstock::core
