// The result never depends on the plan: whatever the model, the policy, the schedule, the split into stages,
// the replicas, the stage groups and the recomputation, workers over Gloo compute the losses and gradients of
// a plain reference that knows nothing of plans.
//
// What runs is a covering set of all pairs: some 70 cases of at most 4 ranks. With
// PENSTOCK_EQUIVALENCE=triples in the environment it is a set of all triples (371 cases of up to 8 ranks),
// with PENSTOCK_EQUIVALENCE=product the product of models, meshes, schedules, recompute and division of the
// state (plan_case.h), with PENSTOCK_EQUIVALENCE=all every combination (about a million). The last two are in
// the order of a seed. Ranks are processes in the first case and threads of this process in all others,
// because to start processes takes longer than what they do. A case waits more than it computes, so let
// several processes run a part each, and write to memory:
//
//   export TMPDIR=/dev/shm PENSTOCK_EQUIVALENCE=all GTEST_TOTAL_SHARDS=4
//   for part in 0 1 2 3; do
//     GTEST_SHARD_INDEX=$part build/release/bin/equivalence_test --gtest_brief=1 > part-$part.log 2>&1 &
//   done
//
// Smaller parts can be run at different times, and each of them is a sample of the whole:
//
//   export TMPDIR=/dev/shm PENSTOCK_EQUIVALENCE=product GTEST_TOTAL_SHARDS=32
//   GTEST_SHARD_INDEX=0 build/release/bin/equivalence_test --gtest_filter='EveryPlan/*' --gtest_brief=1

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/mesh/mesh_ranks.h"
#include "common/mesh/rank_places.h"
#include "planner/core/planner.h"
#include "planner/service/engine/program_message.h"
#include "tests/system/equivalence/cut_plan.h"
#include "tests/system/equivalence/equivalence_samples.h"
#include "tests/system/equivalence/gathered_gradients.h"
#include "tests/system/equivalence/gradient_file.h"
#include "tests/system/equivalence/plan_case.h"
#include "tests/system/equivalence/plan_of_case.h"
#include "tests/system/equivalence/reference.h"
#include "tests/system/equivalence/trained_programs.h"
#include "tests/system/equivalence/worker_threads.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"
#include "worker/program/from_proto.h"

namespace penstock::testing {
namespace {

constexpr uint64_t kIterations = 3;
// Of each wait of a worker that is a thread.
constexpr uint32_t kWorkerTimeoutSeconds = 60;
// Between two lines that say how far it is.
constexpr int kCasesALine = 100;

using Rows = std::vector<ReferenceRow>;

ReferenceSample SampleOf(const std::vector<TinySample>& samples, const v1::Sample& sample) {
  const TinySample& tokens = samples[sample.sample_id()];
  return {tokens.input, tokens.target, tokens.weights};
}

// What sees each other: the samples of a concatenated row, which the plan puts together, else each sample by
// itself. In an order that does not depend on the plan.
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
  std::sort(rows.begin(), rows.end());
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

// Of any iteration, in all replicas.
uint64_t MostMicroBatches(absl::Span<const v1::IterationSummary> summaries) {
  uint64_t most = 0;
  for (const v1::IterationSummary& summary : summaries)
    most = std::max<uint64_t>(most, summary.micro_batches());
  return most;
}

// What a rank of the last stage reports of its tasks adds up to its loss.
void ExpectTasksAddUp(const v1::IterationSummary& summary, const v1::Plan& plan, double tolerance) {
  double loss = 0;
  double weight = 0;
  for (const v1::TaskLoss& task : summary.tasks()) {
    loss += task.loss() * task.weight();
    weight += task.weight();
  }
  EXPECT_EQ(summary.tasks_size(), 3);
  EXPECT_LE(RelativeError({weight}, {plan.loss_weight()}), tolerance);
  EXPECT_LE(RelativeError({loss / weight}, {summary.loss()}), tolerance);
}

// What the cases of a process share.
struct Shared {
  const std::vector<TinySample> samples = EquivalenceSamples();
  const std::vector<TinySample> weighted_samples = WeightedSamples();
  const std::vector<v1::Batch> batches = TinyBatches(samples, kEquivalenceBatch, kIterations);
  // Of a decoder alone and of an encoder-decoder.
  const std::vector<v1::Batch> weighted_batches[2] = {WeightedBatches(batches, weighted_samples, false),
                                                      WeightedBatches(batches, weighted_samples, true)};
  // Its planner serves one case after the other.
  Cluster cluster = Cluster({.store = "memory"});
  bool planner_started = false;
  // By PlanCase.reference and the rows of the iterations.
  std::map<std::pair<std::string, std::vector<Rows>>, std::vector<ReferenceIteration>> references;
  int finished_cases = 0;
  // Cases with context ranks, by how many different spans samples of a micro-batch have at most.
  std::map<size_t, int> by_different_spans;
};

// Of the reference's gradients, by what their names say.
std::map<v1::ModelPart, double> PartNormsOf(const ReferenceIteration& reference) {
  static constexpr std::pair<const char*, v1::ModelPart> kParts[] = {
      {"norm", v1::MODEL_PART_NORMS},
      {"embedding", v1::MODEL_PART_EMBEDDING},
      {"attention", v1::MODEL_PART_ATTENTION},
      {"cross", v1::MODEL_PART_ATTENTION},
      {"bias.weight", v1::MODEL_PART_ATTENTION},
      {"router", v1::MODEL_PART_ROUTER},
      {"experts", v1::MODEL_PART_EXPERTS},
      {"ffn", v1::MODEL_PART_FEED_FORWARD},
      {"head", v1::MODEL_PART_HEAD}};
  std::map<v1::ModelPart, double> norms;
  for (const auto& [name, gradient] : reference.gradients) {
    const auto* const part = std::ranges::find_if(
        kParts, [&name = name](const auto& known) { return absl::StrContains(name, known.first); });
    EXPECT_NE(part, std::end(kParts)) << name;
    for (const double element : gradient.values) norms[part->second] += element * element;
  }
  for (auto& [_, norm] : norms) norm = std::sqrt(norm);
  return norms;
}

void ExpectPartNorms(const v1::IterationSummary& summary, const ReferenceIteration& reference,
                     double tolerance) {
  const std::map<v1::ModelPart, double> expected = PartNormsOf(reference);
  ASSERT_EQ(summary.part_norms_size(), static_cast<int>(expected.size()));
  for (const v1::PartNorm& part : summary.part_norms())
    EXPECT_LE(RelativeError({part.norm()}, {expected.at(part.part())}), tolerance)
        << v1::ModelPart_Name(part.part()) << " of iteration " << summary.iteration();
}

class EquivalenceTest : public ::testing::TestWithParam<PlanCase> {
 protected:
  static void SetUpTestSuite() {
    PrepareForWorkerThreads();
    shared_ = new Shared;
    WriteTinyDataset(DatasetOf(false), shared_->samples);
    WriteTinyDataset(DatasetOf(true), shared_->weighted_samples);
  }

  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }

  // Starts the planner for the first case, and for one after a case that has brought it down.
  void SetUp() override {
    const bool serves =
        shared_->planner_started && !cluster().planner().WaitFor(absl::ZeroDuration()).has_value();
    if (serves) return;
    ASSERT_NO_FATAL_FAILURE(cluster().StartPlanner());
    shared_->planner_started = true;
  }

  void TearDown() override {
    if (shared_->planner_started) DeleteJob();
    std::error_code ignored;
    std::filesystem::remove_all(GradientsFolder(), ignored);
    ShowProgress(++shared_->finished_cases);
  }

  static void DeleteJob() {
    v1::DeleteJobRequest request;
    request.set_job_id(job_id());
    request.set_force(true);
    const absl::Status status = cluster().client().DeleteJob(request).status();
    EXPECT_TRUE(status.ok()) << status;
  }

  static void ShowProgress(int finished) {
    const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
    if (finished % kCasesALine != 0 && finished != tests.test_to_run_count()) return;
    std::cout << finished << " of " << tests.test_to_run_count() << " cases, " << tests.failed_test_count()
              << " failed" << std::endl;
    for (const auto& [spans, cases] : shared_->by_different_spans)
      std::cout << "  up to " << spans << " spans in a micro-batch: " << cases << " cases" << std::endl;
  }

  static Cluster& cluster() { return shared_->cluster; }
  static const std::vector<v1::Batch>& batches() {
    return GetParam().weighted ? shared_->weighted_batches[GetParam().model.encoder_decoder]
                               : shared_->batches;
  }
  static const std::vector<TinySample>& samples() {
    return GetParam().weighted ? shared_->weighted_samples : shared_->samples;
  }
  static std::string DatasetOf(bool weighted) {
    return cluster().folder().Path(weighted ? "weighted" : "data");
  }
  static std::string Dataset() { return DatasetOf(GetParam().weighted); }
  static std::string GradientsFolder() { return cluster().folder().Path("gradients"); }
  static const std::string& job_id() { return GetParam().name; }

  static const std::vector<ReferenceIteration>& Reference(const std::vector<Rows>& rows) {
    const PlanCase& test = GetParam();
    std::vector<ReferenceIteration>& reference = shared_->references[{test.reference, rows}];
    if (reference.empty()) reference = TrainReference(*worker::JobFromProto(test.job), test.model, rows);
    return reference;
  }

  // The largest memory of a rank in a plan of one of the batches.
  int64_t PeakOf(v1::JobSpec job, v1::Recompute recompute) {
    job.mutable_planning()->set_recompute(recompute);
    int64_t peak = 0;
    for (const v1::Batch& batch : batches()) {
      v1::PlanBatchRequest request;
      *request.mutable_job() = job;
      *request.mutable_batch() = batch;
      const absl::StatusOr<v1::PlanBatchResponse> answer = cluster().client().PlanBatch(request);
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
    job.set_job_id(job_id());
    if (job.planning().recompute() != v1::RECOMPUTE_AUTO) return job;
    const int64_t most = PeakOf(job, v1::RECOMPUTE_NONE);
    const int64_t least = PeakOf(job, v1::RECOMPUTE_FULL);
    job.mutable_planning()->set_memory_limit_bytes((most + least) / 2);
    return job;
  }

  static void RunAsProcesses(const v1::JobSpec& job) {
    ASSERT_NO_FATAL_FAILURE(
        cluster().StartWorkers(job, {.dataset = Dataset(), .gradients_dir = GradientsFolder()}));
    cluster().ExpectAllFinish();
  }

  static void RunAsThreads(const v1::JobSpec& job) {
    worker::RunOptions options;
    options.planner = cluster().planner_address();
    options.job_id = job.job_id();
    options.datasets = {Dataset()};
    options.gradients_dir = GradientsFolder();
    options.ready_timeout_s = options.connect_timeout_s = options.transfer_timeout_s = kWorkerTimeoutSeconds;
    options.max_rejoins = 0;
    for (const absl::Status& end : RunWorkerThreads(options, static_cast<uint32_t>(RanksOf(job.mesh())))) {
      EXPECT_TRUE(end.ok()) << end;
    }
  }

  void Run() {
    const v1::JobSpec job = JobToRun();
    ASSERT_NO_FATAL_FAILURE(cluster().Register(job));
    ASSERT_NO_FATAL_FAILURE(cluster().Submit(job.job_id(), batches()));
    shared_->finished_cases == 0 ? RunAsProcesses(job) : RunAsThreads(job);
  }

  static std::string GradientFile(uint64_t iteration, uint32_t rank) {
    return absl::StrCat(GradientsFolder(), "/iteration-", iteration, "/rank-", rank, ".safetensors");
  }

  // The ranks of a replica that are one context rank, or divide the experts together, have all of the
  // reference's gradients, each its part; with shares all ranks have.
  void ExpectGradients(const v1::Plan& plan, const ReferenceIteration& reference, double tolerance) {
    const std::vector<GroupPlace> places = PlacesOf(plan);
    std::map<std::pair<uint32_t, uint32_t>, GatheredGradients> gathered;
    for (int i = 0; i < plan.programs_size(); ++i) {
      const v1::Program& program = plan.programs(i);
      const GroupPlace& own = places[static_cast<size_t>(i)];
      const uint32_t tensor = TensorRanks(plan.mesh());
      const uint32_t together = std::max(tensor, ExpertRanks(plan.mesh()));
      std::pair<uint32_t, uint32_t> place = {program.replica(),
                                             (own.context * tensor + own.tensor) / together};
      if (plan.options().parameter_shares()) place = {0, 0};
      GatheredGradients& gradients = gathered.try_emplace(place, reference.gradients).first->second;
      ASSERT_NO_FATAL_FAILURE(gradients.Add(ReadGradientFile(GradientFile(plan.iteration(), program.rank()))))
          << "rank " << program.rank();
    }
    for (const auto& [place, gradients] : gathered) {
      EXPECT_EQ(gradients.tensors().size(), reference.gradients.size());
      for (const auto& [name, gradient] : gradients.tensors()) {
        EXPECT_LE(RelativeError(gradient, reference.gradients.at(name).values), tolerance)
            << name << " of replica " << place.first << ", ranks " << place.second << " in iteration "
            << plan.iteration();
      }
    }
  }

  static inline Shared* shared_ = nullptr;
};

TEST_P(EquivalenceTest, LossesAndGradientsAreThoseOfTheReference) {
  const PlanCase& test = GetParam();
  ASSERT_NO_FATAL_FAILURE(Run());
  const std::vector<v1::IterationSummary> summaries = cluster().Summaries(job_id());
  ASSERT_EQ(summaries.size(), kIterations) << cluster().PlannerLog();
  std::vector<v1::Plan> plans;
  std::vector<Rows> rows;
  size_t different_spans = 0;
  for (uint64_t i = 0; i < kIterations; ++i) {
    plans.push_back(cluster().Iteration(job_id(), i).plan());
    ExpectPlanOf(test.job, plans.back());
    if (ExpertRanks(test.job.mesh()) > 1) {
      EXPECT_TRUE(ComputesBesideExchanges(plans.back()));
    }
    different_spans = std::max(different_spans, MostDifferentSpans(plans.back()));
    rows.push_back(RowsOf(batches()[i], plans.back(), samples()));
  }
  if (ContextRanks(test.job.mesh()) > 1) ++shared_->by_different_spans[different_spans];
  // The best plan of one batch may have a single micro-batch in each replica.
  if (test.job.mesh().pipeline() > 1) {
    EXPECT_GT(MostMicroBatches(summaries), test.job.mesh().data());
  }
  const std::vector<ReferenceIteration>& reference = Reference(rows);
  for (uint64_t i = 0; i < kIterations; ++i) {
    EXPECT_LE(RelativeError({summaries[i].loss()}, {reference[i].loss}), test.tolerance) << "iteration " << i;
    EXPECT_LE(RelativeError({summaries[i].gradient_norm()}, {reference[i].gradient_norm}), test.tolerance)
        << "iteration " << i;
    ExpectPartNorms(summaries[i], reference[i], test.tolerance);
    ExpectGradients(plans[i], reference[i], test.tolerance);
    if (test.weighted) ExpectTasksAddUp(summaries[i], plans[i], test.tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryPlan, EquivalenceTest, ::testing::ValuesIn(PlanCases(WantedCoverage())),
                         [](const auto& info) { return info.param.name; });

// The same plans with micro-batches in parts, on ranks that are threads of this process.
class InPartsTest : public EquivalenceTest {
 protected:
  void SetUp() override {}
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(GradientsFolder(), ignored);
  }

  static std::vector<v1::Plan> Plans() {
    std::vector<v1::Plan> plans;
    v1::JobSpec job = GetParam().job;
    // The test cuts by itself, between rows.
    job.mutable_planning()->set_most_parts(1);
    if (job.planning().policy() == v1::POLICY_CONCATENATED) job.mutable_planning()->set_micro_batch_size(2);
    auto planner = core::Planner::Create(job);
    EXPECT_TRUE(planner.ok()) << planner.status();
    for (uint64_t i = 0; planner.ok() && i < kIterations; ++i) {
      absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(batches()[i]);
      EXPECT_TRUE(plan.ok()) << plan.status();
      if (!plan.ok()) break;
      plan->set_iteration(i);
      plans.push_back(*std::move(plan));
    }
    return plans;
  }

  // Of the micro-batch that has the most.
  static int MostParts(const std::vector<v1::Plan>& plans) {
    int most = 1;
    for (const v1::Plan& plan : plans)
      for (const v1::Replica& replica : plan.replicas())
        for (const v1::MicroBatch& micro_batch : replica.micro_batches())
          most = std::max(most, micro_batch.part_rows_size() - 1);
    return most;
  }

  static std::vector<TrainedIteration> Train(const std::vector<v1::Plan>& plans) {
    worker::JobConfig job = *worker::JobFromProto(GetParam().job);
    job.topology = *worker::TopologyFromProto(plans.front().topology(), job);
    std::vector<std::vector<worker::Program>> programs(static_cast<size_t>(plans.front().programs_size()));
    for (size_t i = 0; i < plans.size(); ++i) {
      for (uint32_t rank = 0; rank < programs.size(); ++rank) {
        const auto program = worker::ProgramFromProto(MakeProgramMessage(batches()[i], plans[i], rank), job);
        EXPECT_TRUE(program.ok()) << program.status();
        if (!program.ok()) return {};
        programs[rank].push_back(*program);
      }
    }
    const auto trained = TrainPrograms(job, programs, Dataset(), GradientsFolder());
    EXPECT_TRUE(trained.ok()) << trained.status();
    return trained.ok() ? *trained : std::vector<TrainedIteration>();
  }
};

TEST_P(InPartsTest, LossesAndGradientsAreThoseOfTheReference) {
  const PlanCase& test = GetParam();
  std::vector<v1::Plan> plans = Plans();
  ASSERT_EQ(plans.size(), kIterations);
  for (size_t i = 0; i < plans.size(); ++i) CutIntoParts(plans[i], static_cast<uint32_t>(i));
  EXPECT_GT(MostParts(plans), 1) << "nothing was cut";
  const std::vector<TrainedIteration> trained = Train(plans);
  ASSERT_EQ(trained.size(), kIterations);
  std::vector<Rows> rows;
  for (uint64_t i = 0; i < kIterations; ++i) rows.push_back(RowsOf(batches()[i], plans[i], samples()));
  const std::vector<ReferenceIteration>& reference = Reference(rows);
  for (uint64_t i = 0; i < kIterations; ++i) {
    EXPECT_LE(RelativeError({trained[i].loss}, {reference[i].loss}), test.tolerance) << "iteration " << i;
    EXPECT_LE(RelativeError({trained[i].gradient_norm}, {reference[i].gradient_norm}), test.tolerance);
    ExpectGradients(plans[i], reference[i], test.tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(CutPlans, InPartsTest, ::testing::ValuesIn(PlanCasesForParts(WantedCoverage())),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::testing
