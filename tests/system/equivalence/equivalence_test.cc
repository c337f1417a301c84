// The result never depends on the plan: whatever the model, the policy, the schedule, the split into stages,
// the replicas and the recomputation, real processes over Gloo compute the losses and gradients of a plain
// reference that knows nothing of plans.
//
// What runs is a covering set of all pairs: some 34 cases. PENSTOCK_EQUIVALENCE=triples
// build/release/bin/equivalence_test covers all triples (160 cases), PENSTOCK_EQUIVALENCE=all runs every
// combination (19,968).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/system/equivalence/gradient_file.h"
#include "tests/system/equivalence/plan_case.h"
#include "tests/system/equivalence/reference.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"
#include "worker/program/from_proto.h"

namespace penstock::testing {
namespace {

constexpr size_t kSamples = 36;
constexpr size_t kBatch = 12;
constexpr uint64_t kIterations = 3;

using Rows = std::vector<ReferenceRow>;

ReferenceSample SampleOf(const std::vector<TinySample>& samples, const v1::Sample& sample) {
  const TinySample& tokens = samples[sample.sample_id()];
  return {tokens.input, tokens.target};
}

// What sees each other: the samples of a concatenated row, which the plan puts together, else each sample by
// itself.
Rows RowsOf(const v1::Batch& batch, const v1::Plan& plan, const std::vector<TinySample>& samples) {
  Rows rows;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
      int row = 0;
      for (int i = 0; i < micro_batch.samples_size(); ++i) {
        const bool concatenated = micro_batch.layout() == v1::LAYOUT_CONCATENATED;
        while (concatenated && static_cast<uint32_t>(i) >= micro_batch.row_samples(row + 1)) ++row;
        if (!concatenated || static_cast<uint32_t>(i) == micro_batch.row_samples(row)) rows.emplace_back();
        rows.back().push_back(SampleOf(samples, batch.samples(static_cast<int>(micro_batch.samples(i)))));
      }
    }
  }
  return rows;
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

bool Contains(const v1::Plan& plan, v1::Op op) {
  for (const v1::Program& program : plan.programs()) {
    for (const v1::Instruction& instruction : program.instructions()) {
      if (instruction.op() == op) return true;
    }
  }
  return false;
}

// The plan is what its case is about, so that a pass means something.
void ExpectPlanOf(const v1::PlanningOptions& options, const v1::Plan& plan) {
  if (plan.layers_per_stage_size() > 1 && options.schedule() == v1::SCHEDULE_SPLIT_BACKWARD) {
    EXPECT_TRUE(Contains(plan, v1::OP_BACKWARD_WEIGHT)) << "no backward pass is split";
  }
  if (!options.rank_of_stage().empty()) {
    EXPECT_EQ(plan.layers_per_stage_size(), options.rank_of_stage_size());
  }
  for (const v1::Replica& replica : plan.replicas()) {
    EXPECT_TRUE(plan.programs_size() == 1 || !replica.micro_batches().empty());
    for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
      for (int stage = 0; stage < micro_batch.recompute_size(); ++stage) {
        const v1::StageRecompute& recompute = micro_batch.recompute(stage);
        const uint32_t layers = plan.layers_per_stage(stage);
        if (options.recompute() == v1::RECOMPUTE_FULL) {
          EXPECT_EQ(recompute.full_layers(), layers);
        }
        if (options.recompute() == v1::RECOMPUTE_SELECTIVE) {
          EXPECT_EQ(recompute.selective_layers(), layers);
        }
      }
    }
  }
}

// Some samples without input, and some without target.
std::vector<TinySample> Samples() {
  std::vector<TinySample> samples = TinySamples(kSamples);
  for (size_t i = 7; i < kSamples; i += kBatch) {
    TinySample& sample = samples[i];
    sample.input.insert(sample.input.end(), sample.target.begin(), sample.target.end());
    sample.target.clear();
  }
  return samples;
}

class EquivalenceTest : public ::testing::TestWithParam<PlanCase> {
 protected:
  // References of whole samples, by PlanCase.reference, where several cases run in one process.
  static const std::vector<ReferenceIteration>& Reference(const PlanCase& test,
                                                          const std::vector<Rows>& rows) {
    static auto& known = *new std::map<std::string, std::vector<ReferenceIteration>>;
    const bool concatenated = test.job.planning().policy() == v1::POLICY_CONCATENATED;
    std::vector<ReferenceIteration>& reference = known[concatenated ? test.name : test.reference];
    if (reference.empty()) reference = TrainReference(*worker::JobFromProto(test.job), test.model, rows);
    return reference;
  }

  // The largest memory of a rank in a plan of one of the batches.
  int64_t PeakOf(v1::JobSpec job, v1::Recompute recompute) {
    job.mutable_planning()->set_recompute(recompute);
    int64_t peak = 0;
    for (const v1::Batch& batch : batches_) {
      v1::PlanBatchRequest request;
      *request.mutable_job() = job;
      *request.mutable_batch() = batch;
      const absl::StatusOr<v1::PlanBatchResponse> answer = cluster_.client().PlanBatch(request);
      EXPECT_TRUE(answer.ok()) << answer.status();
      if (!answer.ok()) return 0;
      for (const v1::RankPrediction& rank : answer->plan().predicted().ranks()) {
        peak = std::max(peak, rank.peak_memory_bytes());
      }
    }
    return peak;
  }

  // The job of the case; where the planner decides what is recomputed, with so little memory that it must.
  v1::JobSpec JobToRun() {
    v1::JobSpec job = GetParam().job;
    if (job.planning().recompute() != v1::RECOMPUTE_AUTO) return job;
    const int64_t most = PeakOf(job, v1::RECOMPUTE_NONE);
    const int64_t least = PeakOf(job, v1::RECOMPUTE_FULL);
    job.mutable_planning()->set_memory_limit_bytes((most + least) / 2);
    return job;
  }

  void Run() {
    const std::string dataset = cluster_.folder().Path("data");
    WriteTinyDataset(dataset, samples_);
    ASSERT_NO_FATAL_FAILURE(cluster_.StartPlanner());
    const v1::JobSpec job = JobToRun();
    ASSERT_NO_FATAL_FAILURE(cluster_.Register(job));
    ASSERT_NO_FATAL_FAILURE(cluster_.Submit(job.job_id(), batches_));
    ASSERT_NO_FATAL_FAILURE(cluster_.StartWorkers(
        job, {.dataset = dataset, .gradients_dir = cluster_.folder().Path("gradients")}));
    cluster_.ExpectAllFinish();
  }

  std::string GradientFile(uint64_t iteration, uint32_t rank) const {
    return cluster_.folder().Path(
        absl::StrCat("gradients/iteration-", iteration, "/rank-", rank, ".safetensors"));
  }

  // Every rank has its part of the reference's gradients, and the ranks of a replica have them all.
  void ExpectGradients(const v1::Plan& plan, const ReferenceIteration& reference, double tolerance) {
    std::vector<std::set<std::string>> compared(static_cast<size_t>(plan.replicas_size()));
    for (const v1::Program& program : plan.programs()) {
      for (const auto& [name, gradient] : ReadGradientFile(GradientFile(plan.iteration(), program.rank()))) {
        ASSERT_TRUE(reference.gradients.contains(name)) << name;
        EXPECT_LE(RelativeError(gradient, reference.gradients.at(name)), tolerance)
            << name << " of rank " << program.rank() << " in iteration " << plan.iteration();
        compared[program.replica()].insert(name);
      }
    }
    for (size_t replica = 0; replica < compared.size(); ++replica) {
      EXPECT_EQ(compared[replica].size(), reference.gradients.size())
          << "replica " << replica << ", iteration " << plan.iteration();
    }
  }

  const std::vector<TinySample> samples_ = Samples();
  const std::vector<v1::Batch> batches_ = TinyBatches(samples_, kBatch, kIterations);
  Cluster cluster_;
};

TEST_P(EquivalenceTest, LossesAndGradientsAreThoseOfTheReference) {
  const PlanCase& test = GetParam();
  ASSERT_NO_FATAL_FAILURE(Run());
  const std::vector<v1::IterationSummary> summaries = cluster_.Summaries(test.job.job_id());
  ASSERT_EQ(summaries.size(), kIterations) << cluster_.PlannerLog();
  std::vector<v1::Plan> plans;
  std::vector<Rows> rows;
  for (uint64_t i = 0; i < kIterations; ++i) {
    plans.push_back(cluster_.Iteration(test.job.job_id(), i).plan());
    ExpectPlanOf(test.job.planning(), plans.back());
    rows.push_back(RowsOf(batches_[i], plans.back(), samples_));
  }
  const std::vector<ReferenceIteration>& reference = Reference(test, rows);
  for (uint64_t i = 0; i < kIterations; ++i) {
    if (test.job.mesh().pipeline() > 1) {
      EXPECT_GT(summaries[i].micro_batches(), test.job.mesh().data());
    }
    EXPECT_LE(RelativeError({summaries[i].loss()}, {reference[i].loss}), test.tolerance) << "iteration " << i;
    EXPECT_LE(RelativeError({summaries[i].gradient_norm()}, {reference[i].gradient_norm}), test.tolerance)
        << "iteration " << i;
    ExpectGradients(plans[i], reference[i], test.tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryPlan, EquivalenceTest, ::testing::ValuesIn(PlanCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::testing
