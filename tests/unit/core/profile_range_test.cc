// Costs over the whole range of a profile and beyond it: inside the grid, across its border, in the closed
// form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/planner.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNsPerMs = 1e6;
// Tokens in a micro-batch beyond which the reference profiles have no measured points.
constexpr double kMostProfiledTokens = 131'072;
const std::vector<uint32_t> kRows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

// Tables as the analytic reference profiles have them: the closed form at every point of the grid, nothing
// where a micro-batch has too many tokens.
void FillTables(v1::LayerCost* layer, const v1::Grid& grid, bool source, bool target) {
  const LayerTime time = LayerTimeFromProto(layer->forward());
  const std::vector<uint32_t> none = {0};
  const std::vector<uint32_t> sources =
      source ? std::vector<uint32_t>(grid.source_length().begin(), grid.source_length().end()) : none;
  const std::vector<uint32_t> targets =
      target ? std::vector<uint32_t>(grid.target_length().begin(), grid.target_length().end()) : none;
  for (const uint32_t rows : grid.micro_batch_size()) {
    for (const uint32_t s : sources) {
      for (const uint32_t t : targets) {
        const TokenSums shape =
            PaddedSums(static_cast<int32_t>(rows), static_cast<int32_t>(s), static_cast<int32_t>(t));
        const bool profiled = std::max(shape.source, shape.target) <= kMostProfiledTokens;
        const double ms = profiled ? time(shape) / kNsPerMs : std::numeric_limits<double>::quiet_NaN();
        layer->mutable_forward_ms()->add_values(ms);
        layer->mutable_backward_none_ms()->add_values(2 * ms);
      }
    }
  }
}

void SetRows(v1::Grid* grid) { grid->mutable_micro_batch_size()->Add(kRows.begin(), kRows.end()); }

// Coefficients of a GPT of 6.7e9 parameters at 200e12 operations a second.
v1::JobSpec ReferenceGpt() {
  v1::JobSpec job = GptJob(4, 1, v1::POLICY_DYNAMIC);
  job.mutable_model()->set_max_sequence_length(131'072);
  v1::Grid* grid = job.mutable_profile()->mutable_grid();
  SetRows(grid);
  for (uint32_t length = 32; length <= 16'384; length *= 2) grid->add_target_length(length);
  constexpr double kHidden = 4096, kSpeed = 200e12 / 1e9;
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    v1::LayerTime* time = layer.mutable_forward();
    time->set_fixed_ns(0.15e6);
    time->set_half_efficiency_tokens(512);
    time->set_target_token_ns((layer.name() == "head" ? 2 * kHidden * 50'304 : 24 * kHidden * kHidden) /
                              kSpeed);
    time->set_target_square_ns(layer.name() == "head" ? 0 : 2 * kHidden / kSpeed);
    FillTables(&layer, *grid, false, true);
  }
  return job;
}

// Coefficients of a T5 of 11e9 parameters.
v1::JobSpec ReferenceT5() {
  v1::JobSpec job = T5Job(4, 1, v1::POLICY_DYNAMIC);
  job.mutable_model()->set_max_sequence_length(16'384);
  v1::Grid* grid = job.mutable_profile()->mutable_grid();
  SetRows(grid);
  for (uint32_t length = 8; length <= 2048; length *= 2) grid->add_source_length(length);
  for (uint32_t length = 8; length <= 1024; length *= 2) grid->add_target_length(length);
  constexpr double kHidden = 1024, kInner = 16'384, kFfn = 65'536, kSpeed = 200e12 / 1e9;
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    v1::LayerTime* time = layer.mutable_forward();
    time->Clear();
    time->set_half_efficiency_tokens(512);
    if (layer.name() == "encoder") {
      time->set_fixed_ns(0.15e6);
      time->set_source_token_ns(2 * (4 * kHidden * kInner + 2 * kHidden * kFfn) / kSpeed);
      time->set_source_square_ns(4 * kInner / kSpeed);
    } else if (layer.name() == "decoder") {
      time->set_fixed_ns(0.2e6);
      time->set_target_token_ns(2 * (6 * kHidden * kInner + 2 * kHidden * kFfn) / kSpeed);
      time->set_target_square_ns(2 * kInner / kSpeed);
      time->set_cross_ns(4 * kInner / kSpeed);
      time->set_source_token_ns(4 * kHidden * kInner / kSpeed);
    } else {
      time->set_fixed_ns(0.1e6);
      time->set_target_token_ns(2 * kHidden * 32'128 / kSpeed);
    }
    FillTables(&layer, *grid, layer.name() != "head" && layer.name() != "layer", layer.name() != "encoder");
  }
  return job;
}

// Forward and backward time of all stages.
double TimeOf(const CostModel& costs, const TokenSums& sums) {
  LayerCosts layers;
  EXPECT_TRUE(costs.Layers(sums, &layers));
  int64_t time = 0;
  for (int stage = 0; stage < costs.stages(); ++stage) {
    time += costs.ForwardNs(stage, layers) + costs.BackwardNs(stage, layers, StageRecompute());
  }
  return static_cast<double>(time);
}

// Walks `value` from 1 up, first in steps of 1, then of 1/16, and expects time to grow by each step and never
// by much more than the step.
void ExpectSmoothGrowth(const char* what, uint32_t last, const std::function<double(int32_t)>& time) {
  double before = 0;
  int32_t previous = 0;
  for (int32_t value = 1; value <= static_cast<int32_t>(last); value += 1 + value / 16) {
    const double now = time(value);
    if (previous > 0) {
      EXPECT_GE(now, before) << what << " " << previous << " to " << value;
      const double step = static_cast<double>(value) / previous;
      // Squares grow by the square of the step; the border of the grid adds a few per cent.
      EXPECT_LT(now, before * step * step * 1.03) << what << " " << previous << " to " << value;
    }
    before = now;
    previous = value;
  }
}

// The values beside each point of an axis: where corners of the grid change.
void ExpectGrowthAround(const char* what, const std::vector<uint32_t>& points,
                        const std::function<double(int32_t)>& time) {
  for (const uint32_t point : points) {
    const auto value = static_cast<int32_t>(point);
    if (value > 1) {
      EXPECT_GE(time(value), time(value - 1)) << what << " " << value;
    }
    EXPECT_LE(time(value), time(value + 1)) << what << " " << value;
  }
}

TEST(ProfileRangeTest, GptTimesGrowWithRowsAndLengthInsideAndBeyondTheGrid) {
  const CostModel costs = ModelOf(ReferenceGpt());
  const std::vector<uint32_t> lengths = {32, 64, 1024, 4096, 8192, 16'384};
  for (const int32_t rows : {1, 3, 8, 12, 100, 512, 600}) {
    const auto time = [&](int32_t length) { return TimeOf(costs, PaddedSums(rows, 0, length)); };
    ExpectSmoothGrowth("length", 40'000, time);
    ExpectGrowthAround("length", lengths, time);
  }
  for (const int32_t length : {1, 31, 50, 700, 3000, 12'000, 16'384, 20'000}) {
    const auto time = [&](int32_t rows) { return TimeOf(costs, PaddedSums(rows, 0, length)); };
    ExpectSmoothGrowth("rows", 1500, time);
    ExpectGrowthAround("rows", kRows, time);
  }
}

TEST(ProfileRangeTest, T5TimesGrowWithRowsAndLengthsInsideAndBeyondTheGrid) {
  const CostModel costs = ModelOf(ReferenceT5());
  for (const int32_t rows : {1, 3, 12, 100, 600}) {
    for (const int32_t other : {5, 30, 700, 1024, 1500}) {
      ExpectSmoothGrowth("source", 5000,
                         [&](int32_t length) { return TimeOf(costs, PaddedSums(rows, length, other)); });
      ExpectSmoothGrowth("target", 5000,
                         [&](int32_t length) { return TimeOf(costs, PaddedSums(rows, other, length)); });
    }
  }
  for (const int32_t source : {5, 100, 1500, 3000}) {
    for (const int32_t target : {5, 100, 700, 1100}) {
      const auto time = [&](int32_t rows) { return TimeOf(costs, PaddedSums(rows, source, target)); };
      ExpectSmoothGrowth("rows", 1500, time);
      ExpectGrowthAround("rows", kRows, time);
    }
  }
}

TEST(ProfileRangeTest, PackedTimesGrowWithEveryToken) {
  for (const v1::JobSpec& spec : {ReferenceGpt(), ReferenceT5()}) {
    const CostModel costs = ModelOf(spec);
    const uint32_t source = spec.model().architecture() == v1::ARCHITECTURE_T5 ? 700 : 0;
    ExpectSmoothGrowth("packed", 60'000, [&](int32_t target) {
      TokenSums sums;
      AddPacked({source, 300, 0}, &sums);
      AddPacked({source, static_cast<uint32_t>(target), 0}, &sums);
      return TimeOf(costs, sums);
    });
  }
}

TEST(ProfileRangeTest, SamplesBeyondTheGridArePlannedWithTheClosedForm) {
  v1::JobSpec job = ReferenceGpt();
  job.mutable_planning()->set_layout(v1::LAYOUT_CHOICE_PADDED);
  const auto planner = Planner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  EXPECT_TRUE((*planner)->MakePlan(MakeBatch({{10, 10}, {30'000, 2000}, {100, 100}})).ok());
}

// A profile of measured points alone: up to 4 rows of up to 64 tokens.
v1::JobSpec GridOnly(v1::Policy policy) {
  v1::JobSpec job = GptJob(2, 1, policy);
  v1::Grid* grid = job.mutable_profile()->mutable_grid();
  for (const uint32_t rows : {1, 2, 4}) grid->add_micro_batch_size(rows);
  for (const uint32_t length : {16, 64}) grid->add_target_length(length);
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    const LayerTime time = LayerTimeFromProto(layer.forward());
    for (const int32_t rows : {1, 2, 4}) {
      for (const int32_t length : {16, 64}) {
        layer.mutable_forward_ms()->add_values(time(PaddedSums(rows, 0, length)) / kNsPerMs);
      }
    }
    layer.clear_forward();
  }
  return job;
}

std::string ErrorOf(const v1::JobSpec& job, const v1::Batch& batch) {
  const auto planner = Planner::Create(job);
  if (!planner.ok()) return std::string(planner.status().message());
  return std::string((*planner)->MakePlan(batch).status().message());
}

TEST(ProfileRangeTest, AGridAloneIsPlannedPadded) {
  const auto planner = Planner::Create(GridOnly(v1::POLICY_DYNAMIC));
  ASSERT_TRUE(planner.ok()) << planner.status();
  const auto plan = (*planner)->MakePlan(MakeBatch({{10, 10}, {20, 44}, {0, 5}, {8, 8}, {16, 16}, {3, 4}}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const v1::MicroBatch& micro_batch : plan->replicas(0).micro_batches()) {
    EXPECT_EQ(micro_batch.layout(), v1::LAYOUT_PADDED);
    EXPECT_LE(micro_batch.rows(), 4u);
  }
}

TEST(ProfileRangeTest, PackedMicroBatchesOfAGridAloneAreRefusedByField) {
  const v1::Batch batch = MakeBatch({{10, 10}});
  EXPECT_THAT(ErrorOf(GridOnly(v1::POLICY_PACKED), batch),
              AllOf(HasSubstr("job.planning.policy"), HasSubstr("closed form"), HasSubstr("padding")));
  EXPECT_THAT(ErrorOf(GridOnly(v1::POLICY_TOKEN_BUDGET), batch), HasSubstr("job.planning.policy"));
  v1::JobSpec packed = GridOnly(v1::POLICY_DYNAMIC);
  packed.mutable_planning()->set_layout(v1::LAYOUT_CHOICE_PACKED);
  EXPECT_THAT(ErrorOf(packed, batch), AllOf(HasSubstr("job.planning.layout"), HasSubstr("use padded")));
}

TEST(ProfileRangeTest, ASampleBeyondAGridAloneIsNamedWithItsShapeAndTheLongestThatFits) {
  EXPECT_THAT(ErrorOf(GridOnly(v1::POLICY_DYNAMIC), MakeBatch({{10, 10}, {50, 15}})),
              AllOf(HasSubstr("batch.samples[1]: shape [1, 0, 65]"),
                    HasSubstr("outside of the profile's grid"), HasSubstr("a maximum length of 64")));
}

TEST(ProfileRangeTest, AMicroBatchBeyondAGridAloneIsNamedWithItsShape) {
  v1::JobSpec job = GridOnly(v1::POLICY_PADDING);
  job.mutable_planning()->set_micro_batch_size(5);
  EXPECT_THAT(ErrorOf(job, MakeBatch({{10, 10}, {5, 15}, {1, 1}, {1, 1}, {1, 1}})),
              AllOf(HasSubstr("shape [5, 0, 20]"), HasSubstr("outside of the profile's grid"),
                    HasSubstr("job.planning.micro_batch_size 4")));
}

struct Corruption {
  const char* name;
  void (*damage)(v1::CostProfile*);
  const char* message;
};

class CorruptProfileTest : public ::testing::TestWithParam<Corruption> {};

TEST_P(CorruptProfileTest, IsRefusedByField) {
  v1::JobSpec job = ReferenceGpt();
  GetParam().damage(job.mutable_profile());
  const auto profile = ProfileFromProto(job.profile(), Architecture::kGpt);
  EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(profile.status().message()), HasSubstr(GetParam().message));
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    Fields, CorruptProfileTest,
    ::testing::Values(
        Corruption{
            "NanTime",
            [](v1::CostProfile* p) { p->mutable_layers(0)->mutable_forward()->set_target_token_ns(kNan); },
            "profile.layers[0].forward.target_token_ns: nan; must be finite"},
        Corruption{"NegativeTime",
                   [](v1::CostProfile* p) { p->mutable_layers(1)->mutable_forward()->set_fixed_ns(-1); },
                   "profile.layers[1].forward.fixed_ns: -1; must be finite and at least 0"},
        Corruption{"HugeTime",
                   [](v1::CostProfile* p) { p->mutable_layers(0)->mutable_forward()->set_fixed_ns(1e15); },
                   "profile.layers[0].forward.fixed_ns: 1e+15; more than 1e+12: is it in nanoseconds?"},
        Corruption{"InfiniteBytes",
                   [](v1::CostProfile* p) {
                     p->mutable_layers(0)->mutable_stored_full()->set_target_token_bytes(
                         std::numeric_limits<double>::infinity());
                   },
                   "profile.layers[0].stored_full.target_token_bytes"},
        Corruption{"NegativePeakOfSplitBackward",
                   [](v1::CostProfile* p) {
                     p->mutable_layers(0)->mutable_split_backward_peak()->set_target_token_bytes(-1);
                   },
                   "profile.layers[0].split_backward_peak.target_token_bytes: -1; must be finite"},
        Corruption{"SplitBackwardOfAHead",
                   [](v1::CostProfile* p) {
                     p->mutable_layers(1)->mutable_split_backward_peak()->set_target_token_bytes(1);
                   },
                   "profile.layers[1].split_backward_peak: a head has none"},
        Corruption{"HugeParameters",
                   [](v1::CostProfile* p) { p->mutable_layers(0)->set_parameter_bytes(1e18); },
                   "profile.layers[0].parameter_bytes"},
        Corruption{"RecomputeThatSavesTime",
                   [](v1::CostProfile* p) { p->mutable_layers(0)->set_backward_ratio_full(0.1); },
                   "profile.layers[0].backward_ratio_full: 0.1; must be at least backward_ratio_none"},
        Corruption{"Ratio", [](v1::CostProfile* p) { p->mutable_layers(0)->set_backward_ratio_full(-2); },
                   "profile.layers[0].backward_ratio_full"},
        Corruption{"Share", [](v1::CostProfile* p) { p->mutable_layers(0)->set_backward_input_share(1.5); },
                   "profile.layers[0].backward_input_share: 1.5; more than 1"},
        Corruption{"Axis", [](v1::CostProfile* p) { p->mutable_grid()->set_target_length(2, 64); },
                   "profile.grid.target_length[2]: 64; an axis must be ascending"},
        Corruption{"TableSize",
                   [](v1::CostProfile* p) { p->mutable_layers(0)->mutable_forward_ms()->add_values(1); },
                   "profile.layers[0].forward_ms: 101 values; the grid has 100 points"},
        Corruption{"TableValue",
                   [](v1::CostProfile* p) { p->mutable_layers(0)->mutable_forward_ms()->set_values(7, -3); },
                   "profile.layers[0].forward_ms.values[7]: -3"},
        Corruption{"EmptyTable",
                   [](v1::CostProfile* p) {
                     for (double& value : *p->mutable_layers(0)->mutable_forward_ms()->mutable_values())
                       value = kNan;
                   },
                   "profile.layers[0].forward_ms: has no measured point"},
        Corruption{"TableUnit",
                   [](v1::CostProfile* p) {
                     for (double& value : *p->mutable_layers(0)->mutable_forward_ms()->mutable_values())
                       value *= 1000;
                   },
                   "profile.layers[0].forward_ms: its values are 1000 times those of the closed form"},
        Corruption{"Nothing",
                   [](v1::CostProfile* p) {
                     p->mutable_layers(0)->clear_forward();
                     p->mutable_layers(0)->clear_forward_ms();
                   },
                   "profile.layers[0]: has neither a closed form (forward) nor a table"},
        Corruption{"State", [](v1::CostProfile* p) { p->set_state_bytes_per_parameter_byte(kNan); },
                   "profile.state_bytes_per_parameter_byte"},
        Corruption{"Bandwidth",
                   [](v1::CostProfile* p) { p->mutable_cluster()->set_intra_node_bytes_per_second(kNan); },
                   "profile.cluster.intra_node_bytes_per_second: nan"},
        Corruption{"Latency", [](v1::CostProfile* p) { p->mutable_cluster()->set_inter_node_latency_ns(-5); },
                   "profile.cluster.inter_node_latency_ns"},
        Corruption{"ClusterMemory",
                   [](v1::CostProfile* p) {
                     p->mutable_cluster()->set_memory_bytes(std::numeric_limits<int64_t>::max());
                   },
                   "profile.cluster.memory_bytes"},
        Corruption{"Embedding", [](v1::CostProfile* p) { p->set_embedding_parameter_bytes(-1); },
                   "profile.embedding_parameter_bytes"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace penstock::core
