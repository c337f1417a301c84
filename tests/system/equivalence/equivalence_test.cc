// The result never depends on the plan: whatever the policy, the schedule, the split into stages, the
// replicas and the recomputation, real processes over Gloo compute the losses and gradients of a plain
// reference that knows nothing of plans.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/system/equivalence/gradient_file.h"
#include "tests/system/equivalence/reference.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"
#include "worker/program/from_proto.h"

namespace penstock::testing {
namespace {

constexpr size_t kSamples = 36;
constexpr size_t kBatch = 12;
constexpr uint64_t kIterations = 3;

// How a job is planned.
struct Planning {
  const char* name;
  v1::Policy policy;
  v1::LayoutChoice layout;
  // Samples or tokens of a micro-batch; small enough for several of them on every mesh.
  uint32_t micro_batch_size;
  uint32_t token_cap;
  v1::Schedule schedule = v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD;
  v1::StageSplit stage_split = v1::STAGE_SPLIT_EVEN;
};

constexpr Planning kPlannings[] = {
    {"Padding", v1::POLICY_PADDING, v1::LAYOUT_CHOICE_UNSPECIFIED, 2, 0},
    {"Packed", v1::POLICY_PACKED, v1::LAYOUT_CHOICE_UNSPECIFIED, 0, 30},
    {"DynamicPadded", v1::POLICY_DYNAMIC, v1::LAYOUT_CHOICE_PADDED, 0, 0},
    {"DynamicPacked", v1::POLICY_DYNAMIC, v1::LAYOUT_CHOICE_PACKED, 0, 0},
    {"ReadyFirst", v1::POLICY_DYNAMIC, v1::LAYOUT_CHOICE_UNSPECIFIED, 0, 0, v1::SCHEDULE_READY_FIRST,
     v1::STAGE_SPLIT_AUTO},
};

struct Precision {
  const char* name;
  v1::DataType dtype;
  uint32_t bytes;
  // Largest difference, relative to the largest value of the reference.
  double tolerance;
};

constexpr Precision kPrecisions[] = {{"Float64", v1::DATA_TYPE_FLOAT64, 8, 1e-9},
                                     {"Float32", v1::DATA_TYPE_FLOAT32, 4, 1e-4}};

// Planning, pipeline, data, recompute, precision.
using Parameters = std::tuple<Planning, uint32_t, uint32_t, v1::Recompute, Precision>;

std::string NameOf(const ::testing::TestParamInfo<Parameters>& info) {
  const auto& [planning, pipeline, data, recompute, precision] = info.param;
  return absl::StrCat(planning.name, "Pipeline", pipeline, "Data", data,
                      recompute == v1::RECOMPUTE_FULL ? "RecomputeFull" : "RecomputeNone", precision.name);
}

v1::JobSpec JobOf(const Parameters& parameters) {
  const auto& [planning, pipeline, data, recompute, precision] = parameters;
  v1::JobSpec job = TinyJob();
  job.mutable_model()->set_dtype(precision.dtype);
  job.mutable_profile()->set_bytes_per_element(precision.bytes);
  job.mutable_mesh()->set_pipeline(pipeline);
  job.mutable_mesh()->set_data(data);
  v1::PlanningOptions& options = *job.mutable_planning();
  options.set_policy(planning.policy);
  options.set_layout(planning.layout);
  options.set_micro_batch_size(planning.micro_batch_size);
  options.set_token_cap(planning.token_cap);
  options.set_schedule(planning.schedule);
  options.set_stage_split(planning.stage_split);
  options.set_recompute(recompute);
  job.mutable_training()->set_iterations(kIterations);
  return job;
}

std::vector<std::vector<ReferenceSample>> ReferenceBatches(const std::vector<TinySample>& samples,
                                                           const std::vector<v1::Batch>& batches) {
  std::vector<std::vector<ReferenceSample>> result;
  for (const v1::Batch& batch : batches) {
    std::vector<ReferenceSample>& same = result.emplace_back();
    for (const v1::Sample& sample : batch.samples()) {
      const TinySample& tokens = samples[sample.sample_id()];
      same.push_back({tokens.input, tokens.target});
    }
  }
  return result;
}

// Largest |a - b| / largest |b|; infinite where sizes differ.
double RelativeError(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
    if (std::isnan(a[i])) return INFINITY;
  }
  return largest > 0 ? difference / largest : difference;
}

class EquivalenceTest : public ::testing::TestWithParam<Parameters> {
 protected:
  std::string GradientFile(uint64_t iteration, uint32_t rank) const {
    return cluster_.folder().Path(
        absl::StrCat("gradients/iteration-", iteration, "/rank-", rank, ".safetensors"));
  }

  // Every rank has its part of the reference's gradients, and the ranks of a pipeline have them all.
  void ExpectGradients(uint64_t iteration, const ReferenceIteration& reference, const v1::Mesh& mesh,
                       double tolerance) {
    for (uint32_t replica = 0; replica < mesh.data(); ++replica) {
      size_t compared = 0;
      for (uint32_t position = 0; position < mesh.pipeline(); ++position) {
        const uint32_t rank = replica * mesh.pipeline() + position;
        for (const auto& [name, gradient] : ReadGradientFile(GradientFile(iteration, rank))) {
          ASSERT_TRUE(reference.gradients.contains(name)) << name;
          EXPECT_LE(RelativeError(gradient, reference.gradients.at(name)), tolerance)
              << name << " of rank " << rank << " in iteration " << iteration;
          ++compared;
        }
      }
      EXPECT_EQ(compared, reference.gradients.size()) << "replica " << replica << ", iteration " << iteration;
    }
  }

  Cluster cluster_;
};

TEST_P(EquivalenceTest, LossesAndGradientsAreThoseOfTheReference) {
  const v1::JobSpec job = JobOf(GetParam());
  const double tolerance = std::get<Precision>(GetParam()).tolerance;
  const std::vector<TinySample> samples = TinySamples(kSamples);
  const std::vector<v1::Batch> batches = TinyBatches(samples, kBatch, kIterations);
  const std::string dataset = cluster_.folder().Path("data");
  WriteTinyDataset(dataset, samples);
  ASSERT_NO_FATAL_FAILURE(cluster_.StartPlanner());
  ASSERT_NO_FATAL_FAILURE(cluster_.Register(job));
  ASSERT_NO_FATAL_FAILURE(cluster_.Submit(job.job_id(), batches));
  ASSERT_NO_FATAL_FAILURE(
      cluster_.StartWorkers(job, {.dataset = dataset, .gradients_dir = cluster_.folder().Path("gradients")}));

  const std::vector<ReferenceIteration> reference =
      TrainReference(*worker::JobFromProto(job), ReferenceBatches(samples, batches));

  cluster_.ExpectAllFinish();
  const std::vector<v1::IterationSummary> summaries = cluster_.Summaries(job.job_id());
  ASSERT_EQ(summaries.size(), kIterations) << cluster_.PlannerLog();
  for (uint64_t i = 0; i < kIterations; ++i) {
    if (job.mesh().pipeline() > 1) {
      EXPECT_GT(summaries[i].micro_batches(), job.mesh().data());
    }
    EXPECT_LE(RelativeError({summaries[i].loss()}, {reference[i].loss}), tolerance) << "iteration " << i;
    EXPECT_LE(RelativeError({summaries[i].gradient_norm()}, {reference[i].gradient_norm}), tolerance)
        << "iteration " << i;
    ExpectGradients(i, reference[i], job.mesh(), tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryPlan, EquivalenceTest,
                         ::testing::Combine(::testing::ValuesIn(kPlannings), ::testing::Values(1, 2, 4),
                                            ::testing::Values(1, 2),
                                            ::testing::Values(v1::RECOMPUTE_NONE, v1::RECOMPUTE_FULL),
                                            ::testing::ValuesIn(kPrecisions)),
                         NameOf);

}  // namespace
}  // namespace penstock::testing
