// Plans whose passes go through micro-batches in parts, while rows of experts travel: sound, as their costs
// say, and no longer than plans that leave micro-batches whole.
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

constexpr int kJobs = kSanitized ? 60 : 300;

// Ranks that divide experts, and some of them layers; rows that take a tenth of a layer, or as long as some.
RandomPlanningCase MakeCase(int seed) {
  RandomJobLimits limits;
  limits.context = 8;
  limits.tensor = seed % 3 == 0 ? 4 : 1;
  limits.expert_percent = 100;
  limits.dense_percent = 40;
  limits.uneven_percent = 30;
  limits.samples = 60;
  limits.pipeline = 2;
  limits.replicas = 2;
  limits.windows_percent = 25;
  limits.backward_forms_percent = 25;
  RandomPlanningCase given = MakeRandomCase(5000000 + seed, limits);
  Random random(seed);
  v1::Cluster* const cluster = given.job.mutable_profile()->mutable_cluster();
  cluster->set_exchange_overlap(random.Chance(50) ? 1 : 0.01 * random.Range(50, 100));
  const double bandwidth = 1e6 * static_cast<double>(1 << random.Range(5, 12));
  cluster->set_intra_node_collective_bytes_per_second(bandwidth);
  cluster->set_inter_node_collective_bytes_per_second(bandwidth);
  // Copies of what layers keep that take nearly nothing, or as long as the layers.
  if (random.Chance(75))
    cluster->set_copy_bytes_per_second(1e9 * static_cast<double>(1 << random.Range(0, 12)));
  return given;
}

class PlansInPartsTest : public testing::Test {
 protected:
  // Empty where the job, or the batch, cannot be planned.
  static v1::Plan PlanOf(const RandomPlanningCase& given, uint32_t most_parts) {
    v1::JobSpec job = given.job;
    job.mutable_planning()->set_most_parts(most_parts);
    const auto planner = Planner::Create(job);
    if (!planner.ok()) return {};
    auto plan = (*planner)->MakePlan(given.batch);
    return plan.ok() ? *std::move(plan) : v1::Plan();
  }

  static void ExpectSound(const RandomPlanningCase& given, const v1::Plan& plan) {
    EXPECT_LE(plan.lower_bound_ns(), plan.predicted().makespan_ns());
    for (const Violation& violation : CheckPlan(given.batch, plan))
      ADD_FAILURE() << "rule " << violation.rule << ": " << violation.message;
    const auto audited = AuditPlan(given.batch, plan, given.job.profile());
    ASSERT_TRUE(audited.ok()) << audited.status();
    for (const Violation& violation : *audited)
      ADD_FAILURE() << "rule " << violation.rule << ": " << violation.message;
  }
};

TEST_F(PlansInPartsTest, AreSoundAndNoLongerThanWithoutParts) {
  const int count = FromEnvironment("PENSTOCK_RANDOM_JOBS", kJobs);
  int planned = 0, in_parts = 0, back_whole = 0, cut_rows = 0;
  std::vector<double> ratios;
  for (int seed = 0; seed < count && !HasFailure(); ++seed) {
    const RandomPlanningCase given = MakeCase(seed);
    if (given.job.mesh().expert() < 2) continue;
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", given.Describe()));
    const v1::Plan plan = PlanOf(given, 0);
    if (plan.programs().empty()) continue;
    ++planned;
    ExpectSound(given, plan);
    if (!HasParts(plan)) continue;
    ++in_parts;
    if (HasWholeBackward(plan)) {
      ++back_whole;
      EXPECT_EQ(given.job.mesh().tensor(), 1);
      EXPECT_GT(given.job.profile().cluster().copy_bytes_per_second(), 0);
    }
    if (HasCutRows(plan)) ++cut_rows;
    const v1::Plan whole = PlanOf(given, 1);
    if (whole.programs().empty()) continue;
    EXPECT_FALSE(HasParts(whole));
    ratios.push_back(static_cast<double>(plan.predicted().makespan_ns()) /
                     static_cast<double>(whole.predicted().makespan_ns()));
  }
  ASSERT_FALSE(ratios.empty());
  std::sort(ratios.begin(), ratios.end());
  std::cout << planned << " plans, " << in_parts << " with micro-batches in parts, " << back_whole
            << " with whole backward passes, " << cut_rows
            << " with rows that are cut; beside whole ones: best " << ratios.front() << ", median "
            << ratios[ratios.size() / 2] << ", 90 % " << ratios[ratios.size() * 9 / 10] << ", worst "
            << ratios.back() << "\n";
  EXPECT_GT(in_parts, planned / 16);
  EXPECT_GT(back_whole, in_parts / 16);
  EXPECT_LT(back_whole, in_parts);
  EXPECT_GT(cut_rows, 0);
  EXPECT_LT(ratios[ratios.size() / 2], 1);
  EXPECT_LE(ratios.back(), 1);
}

// A plan with a micro-batch in parts, damaged in one place.
class DamagedPartsTest : public PlansInPartsTest {
 protected:
  DamagedPartsTest() { Find(/*tensors=*/false); }

  // Of a job whose ranks divide experts alone, or layers too.
  void Find(bool tensors) {
    in_parts_ = nullptr;
    for (int seed = 0; in_parts_ == nullptr && seed < kJobs; ++seed) {
      given_ = MakeCase(seed);
      if (given_.job.mesh().expert() < 2 || (given_.job.mesh().tensor() > 1) != tensors) continue;
      plan_ = PlanOf(given_, 0);
      for (v1::Replica& replica : *plan_.mutable_replicas())
        for (v1::MicroBatch& micro_batch : *replica.mutable_micro_batches())
          if (!micro_batch.part_rows().empty()) in_parts_ = &micro_batch;
    }
  }

  void SetUp() override { ASSERT_NE(in_parts_, nullptr); }

  // Of a pass of the micro-batch, of any rank.
  v1::PassExchange& ExchangeOf(v1::Op op) {
    for (v1::Program& program : *plan_.mutable_programs()) {
      const v1::Replica& replica = plan_.replicas(static_cast<int>(program.replica()));
      for (v1::Instruction& instruction : *program.mutable_instructions()) {
        if (instruction.op() == op &&
            &replica.micro_batches(static_cast<int>(instruction.micro_batch())) == in_parts_)
          return *instruction.mutable_exchange();
      }
    }
    ADD_FAILURE() << "no pass";
    return *plan_.mutable_programs(0)->mutable_instructions(0)->mutable_exchange();
  }

  void ExpectViolation(int rule, const std::string& text) {
    EXPECT_THAT(
        CheckPlan(given_.batch, plan_),
        testing::Contains(testing::AllOf(testing::Field(&Violation::rule, rule),
                                         testing::Field(&Violation::message, testing::HasSubstr(text)))));
  }

  RandomPlanningCase given_;
  v1::Plan plan_;
  v1::MicroBatch* in_parts_ = nullptr;
};

TEST_F(DamagedPartsTest, TheFirstPartBeginsBehindTheFirstRow) {
  in_parts_->set_part_rows(0, 1);
  ExpectViolation(7,
                  absl::StrCat("part_rows has ", in_parts_->part_rows_size(), " entries and begins with 1"));
}

TEST_F(DamagedPartsTest, APartHasNoRow) {
  in_parts_->set_part_rows(1, 0);
  ExpectViolation(7, "part_rows goes from 0 to 0; no part is without a row");
}

TEST_F(DamagedPartsTest, TheLastPartEndsBeforeTheLastRow) {
  const int last = in_parts_->part_rows_size() - 1;
  const uint32_t rows = in_parts_->part_rows(last);
  in_parts_->set_part_rows(last, rows + 1);
  ExpectViolation(7, absl::StrCat("part_rows ends with ", rows + 1, ", the micro-batch has ", rows, " rows"));
}

TEST_F(DamagedPartsTest, PartsWhereNobodyDividesExperts) {
  plan_.mutable_mesh()->set_expert(0);
  ExpectViolation(7, "part_rows is set, but parts are of ranks that divide experts");
}

TEST_F(DamagedPartsTest, AWholeBackwardPassWithoutParts) {
  in_parts_->clear_part_rows();
  in_parts_->set_whole_backward(true);
  ExpectViolation(7, "whole_backward is set, but it has no part_rows");
}

TEST_F(DamagedPartsTest, AWholeBackwardPassWhereTensorRanksDivideTokens) {
  Find(/*tensors=*/true);
  ASSERT_NE(in_parts_, nullptr);
  in_parts_->set_whole_backward(true);
  ExpectViolation(7, "whole_backward is set, but tensor ranks divide its tokens");
}

TEST_F(DamagedPartsTest, AWholeBackwardPassThatIsNotStated) {
  in_parts_->set_whole_backward(!in_parts_->whole_backward());
  const auto audited = AuditPlan(given_.batch, plan_, given_.job.profile());
  ASSERT_TRUE(audited.ok()) << audited.status();
  EXPECT_THAT(*audited, testing::Contains(
                            testing::Field(&Violation::message, testing::HasSubstr("own_duration_ns is"))));
}

TEST_F(DamagedPartsTest, AnExchangeNamesProducts) {
  in_parts_->set_whole_backward(false);
  ExchangeOf(v1::OP_BACKWARD).set_products_beside_return(1);
  ExpectViolation(5, "exchange names products of weights, but the micro-batch is in parts");
}

TEST_F(DamagedPartsTest, RowsThatAreMoreThanTheParts) {
  v1::PassExchange& exchange = ExchangeOf(v1::OP_FORWARD);
  const uint64_t right = exchange.expert_bytes();
  exchange.set_expert_bytes(right + 1);
  ExpectViolation(5, absl::StrCat("exchange.expert_bytes is ", right + 1, ", expected ", right));
}

TEST_F(DamagedPartsTest, ExposedTimeThatTheProfileDoesNotGive) {
  v1::PassExchange& exchange = ExchangeOf(v1::OP_FORWARD);
  const int64_t right = exchange.expert_exposed_ns();
  exchange.set_expert_exposed_ns(right + 1);
  const auto audited = AuditPlan(given_.batch, plan_, given_.job.profile());
  ASSERT_TRUE(audited.ok()) << audited.status();
  EXPECT_THAT(*audited,
              testing::Contains(testing::Field(
                  &Violation::message, testing::HasSubstr(absl::StrCat("exchange.expert_exposed_ns is ",
                                                                       right + 1, ", expected ", right)))));
}

TEST_F(DamagedPartsTest, MorePartsThanTheOptionsAllow) {
  plan_.mutable_options()->set_most_parts(1);
  const auto audited = AuditPlan(given_.batch, plan_, given_.job.profile());
  ASSERT_TRUE(audited.ok()) << audited.status();
  EXPECT_THAT(*audited, testing::Contains(testing::Field(&Violation::message,
                                                         testing::HasSubstr("options.most_parts allows 1"))));
}

}  // namespace
}  // namespace penstock::core
