// Two thousand random small jobs: every plan is valid and not below its bound, every refusal is honest, and
// where all plans can be tried the dynamic policy is close to the best of them.
//
// PENSTOCK_RANDOM_JOBS=N runs N jobs of each test; PENSTOCK_WORST_CASES=FILE writes the jobs that are
// furthest from the optimum, with the optimum, to a file. PENSTOCK_RANDOM_SEED=S runs job S alone.
// PENSTOCK_BRUTE_FORCE_NODES=N searches longer: fewer jobs are too large.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/process/sanitized.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/planner.h"
#include "planner/core/search/memory_room.h"
#include "planner/core/verify/check_plan.h"
#include "tests/support/environment.h"
#include "tests/unit/core/brute_force.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

// Enough for nearly all jobs that are tried.
constexpr int kNodes = 100000;
constexpr uint32_t kBruteForceSamples = 5;

// Fewer where every job takes many times as long.
int JobCount(int count) {
#if defined(NDEBUG)
  return kSanitized ? count / 20 : count;
#else
  return count / 20;
#endif
}

int64_t Nodes() { return FromEnvironment("PENSTOCK_BRUTE_FORCE_NODES", kNodes); }

std::string Percent(double share) { return absl::StrCat(std::to_string(100 * share).substr(0, 5), " %"); }

// A list of ratios, printed as a distribution.
class Distribution {
 public:
  void Add(double value) { values_.push_back(value); }
  size_t size() const { return values_.size(); }
  double At(double share) {
    if (values_.empty()) return 0;
    std::sort(values_.begin(), values_.end());
    return values_[static_cast<size_t>(share * static_cast<double>(values_.size() - 1))];
  }
  void Print(const std::string& name) {
    std::cout << name << ": " << size() << " jobs";
    for (const auto& [label, share] :
         {std::pair("median", 0.5), {"90 %", 0.9}, {"99 %", 0.99}, {"worst", 1.0}}) {
      std::cout << ", " << label << " " << Percent(At(share) - 1);
    }
    std::cout << "\n";
  }

 private:
  std::vector<double> values_;
};

double Ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

bool Splits(const Job& job) {
  return job.schedule == ScheduleFamily::kAuto || job.schedule == ScheduleFamily::kSplitBackward;
}

// Whether every sample could be everywhere at once without recompute.
bool MemoryIsPlenty(const CostModel& costs, const Job& job, const Batch& batch) {
  TokenSums sums;
  for (const SampleTokens& sample : batch.samples) AddPacked(sample, &sums);
  for (int rank = 0; rank < costs.positions(); ++rank) {
    int64_t bytes = 0;
    for (int stage = 0; stage < costs.stages(); ++stage) {
      if (costs.position_of(stage) != rank) continue;
      const StageMemory memory = costs.Memory(stage, sums);
      bytes += costs.StoredBytes(stage, memory, {}) + memory.peak + memory.tokens +
               4 * (memory.input + memory.output);
    }
    if (bytes > AvailableBytes(job, costs).LeastAt(rank)) return false;
  }
  return true;
}

// The jobs that are furthest from the optimum, by kind.
class WorstCases {
 public:
  void Add(const std::string& kind, double ratio, const std::string& text) {
    cases_[kind].emplace(ratio, text);
  }

  void Write() const {
    const char* path = std::getenv("PENSTOCK_WORST_CASES");
    if (path == nullptr) return;
    std::ofstream file(path);
    for (const auto& [kind, cases] : cases_) {
      file << "# " << kind << "\n\n";
      int left = 10;
      for (auto it = cases.rbegin(); it != cases.rend() && left > 0; ++it, --left) {
        file << "## " << Percent(it->first - 1) << "\n\n```\n" << it->second << "```\n\n";
      }
    }
  }

 private:
  std::map<std::string, std::multimap<double, std::string>> cases_;
};

// What a plan does, in the order of its programs.
std::string PassesOf(const v1::Plan& plan) {
  std::string text;
  for (const v1::Replica& replica : plan.replicas()) {
    absl::StrAppend(&text, "replica");
    for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
      absl::StrAppend(&text, " [", micro_batch.layout() == v1::LAYOUT_PACKED ? "packed" : "rectangle");
      for (const uint32_t sample : micro_batch.samples()) absl::StrAppend(&text, " ", sample);
      absl::StrAppend(&text, "]");
    }
    absl::StrAppend(&text, "\n");
  }
  for (const v1::Program& program : plan.programs()) {
    absl::StrAppend(&text, "rank ", program.rank(), ":");
    for (const v1::Instruction& instruction : program.instructions()) {
      const char* name = nullptr;
      if (instruction.op() == v1::OP_FORWARD) name = "F";
      if (instruction.op() == v1::OP_BACKWARD) name = "B";
      if (instruction.op() == v1::OP_BACKWARD_INPUT) name = "dX";
      if (instruction.op() == v1::OP_BACKWARD_WEIGHT) name = "dW";
      if (name == nullptr) continue;
      absl::StrAppend(&text, " ", name, " m", instruction.micro_batch(), " s", instruction.stage(), " ",
                      instruction.expected_start_ns(), "..",
                      instruction.expected_start_ns() + instruction.expected_duration_ns(), ";");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

void ExpectClose(Distribution& distribution) {
  EXPECT_LE(distribution.At(0.5), 1.03);
  EXPECT_LE(distribution.At(1.0), 1.10);
}

class RandomJobsTest : public testing::Test {
 protected:
  void Run(int seed, const RandomJobLimits& limits);
  void CheckRefusal(const Planner& planner, const Batch& batch, const absl::Status& status,
                    const std::string& name);
  void CompareWithOptimum(const Planner& planner, const Batch& batch, const v1::Plan& plan,
                          const RandomPlanningCase& given, const std::string& name);
  // Where memory is tight; `optimistic` is the optimum that forgets buffers.
  void CompareWithExactOptimum(const Planner& planner, const Batch& batch, const v1::Plan& plan,
                               const BruteForceAnswer& optimistic, const RandomPlanningCase& given,
                               const std::string& name);
  void AddWorst(const std::string& kind, const v1::Plan& plan, const BruteForceAnswer& best,
                const RandomPlanningCase& given, const std::string& name);
  bool IsSmall(const Job& job, const Batch& batch) const {
    return batch.samples.size() <= kBruteForceSamples && job.topology.shape().stages.size() <= 4 &&
           job.topology.replicas() <= 3;
  }

  int jobs_ = 0;
  int impossible_jobs_ = 0;
  int planned_ = 0;
  int refused_ = 0;
  // Of refusals: tried by brute force; and of these, such that have a plan.
  int refusals_tried_ = 0;
  int wrongly_refused_ = 0;
  // Too large for brute force, where memory is plenty and where it is tight.
  int incomplete_ = 0;
  int incomplete_tight_ = 0;
  Distribution gap_;
  // Plan by optimum: where memory is plenty and the backward pass may be split, and not; where it is not
  // plenty, by the optimum under the exact account of the programs.
  Distribution split_;
  Distribution whole_;
  Distribution fixed_;
  Distribution tight_;
  // By an optimum that leaves a replica empty.
  Distribution beside_empty_;
  Distribution bound_;
  WorstCases worst_;
};

void RandomJobsTest::CheckRefusal(const Planner& planner, const Batch& batch, const absl::Status& status,
                                  const std::string& name) {
  ++refused_;
  const auto code = status.code();
  ASSERT_TRUE(code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kResourceExhausted)
      << name << status;
  if (code == absl::StatusCode::kInvalidArgument) {
    EXPECT_NE(status.message().find("batch.samples["), absl::string_view::npos) << name << status;
  }
  const Job& job = planner.job();
  if (job.policy != Policy::kDynamic || !IsSmall(job, batch)) return;
  const BruteForceOptions options{kForever, Nodes(), /*any=*/true, /*exact=*/true};
  const BruteForceAnswer answer = BruteForce(planner.costs(), job, batch.samples, options);
  if (!answer.complete) return;
  ++refusals_tried_;
  if (!answer.found) return;
  ++wrongly_refused_;
  worst_.Add("refused, and there is a plan", 1,
             absl::StrCat(name, "refused: ", std::string(status.message()), "\n", answer.text));
}

void RandomJobsTest::CompareWithOptimum(const Planner& planner, const Batch& batch, const v1::Plan& plan,
                                        const RandomPlanningCase& given, const std::string& name) {
  const Job& job = planner.job();
  if (HasOneWayLinks(given.job.profile())) return;
  const int64_t makespan = plan.predicted().makespan_ns();
  const bool plenty = MemoryIsPlenty(planner.costs(), job, batch);
  const bool fixed = job.schedule == ScheduleFamily::kOneForwardOneBackward;
  if (fixed && (!plenty || planner.costs().stages() != planner.costs().positions())) return;
  const BruteForceOptions options{makespan, Nodes()};
  const BruteForceAnswer best =
      fixed ? BruteForceOneForwardOneBackward(planner.costs(), job, batch.samples, makespan)
            : BruteForce(planner.costs(), job, batch.samples, options);
  if (!best.complete) {
    ++(plenty ? incomplete_ : incomplete_tight_);
    if (!plenty) worst_.Add("tight memory, too large", 1, name);
    return;
  }
  ASSERT_TRUE(best.found) << "the plan is better than the optimum\n" << name << PassesOf(plan);
  EXPECT_LE(plan.lower_bound_ns(), best.makespan_ns) << name << best.text;
  bound_.Add(Ratio(best.makespan_ns, plan.lower_bound_ns()));
  worst_.Add("optimum above lower bound", Ratio(best.makespan_ns, plan.lower_bound_ns()),
             absl::StrCat(name, "lower bound ", plan.lower_bound_ns(), " ns, optimum ", best.makespan_ns,
                          " ns\n", best.text));
  // A slow replica that might be left out: plans leave none out that can hold a sample.
  if (best.leaves_empty) {
    beside_empty_.Add(Ratio(makespan, best.makespan_ns));
    return;
  }
  if (plenty) {
    (fixed ? fixed_ : Splits(job) ? split_ : whole_).Add(Ratio(makespan, best.makespan_ns));
    AddWorst(fixed ? "1F1B" : Splits(job) ? "split backward" : "whole backward", plan, best, given, name);
    return;
  }
  CompareWithExactOptimum(planner, batch, plan, best, given, name);
}

void RandomJobsTest::CompareWithExactOptimum(const Planner& planner, const Batch& batch, const v1::Plan& plan,
                                             const BruteForceAnswer& optimistic,
                                             const RandomPlanningCase& given, const std::string& name) {
  const int64_t makespan = plan.predicted().makespan_ns();
  const BruteForceOptions options{makespan, Nodes(), /*any=*/false, /*exact=*/true};
  const BruteForceAnswer best = BruteForce(planner.costs(), planner.job(), batch.samples, options);
  if (!best.complete) {
    ++incomplete_tight_;
    worst_.Add("tight memory, too large", Ratio(makespan, optimistic.makespan_ns), name);
    return;
  }
  ASSERT_TRUE(best.found) << "the plan is better than the exact optimum\n" << name << PassesOf(plan);
  ASSERT_GE(best.makespan_ns, optimistic.makespan_ns) << name << best.text << optimistic.text;
  tight_.Add(Ratio(makespan, best.makespan_ns));
  AddWorst("tight memory", plan, best, given, name);
}

void RandomJobsTest::AddWorst(const std::string& kind, const v1::Plan& plan, const BruteForceAnswer& best,
                              const RandomPlanningCase& given, const std::string& name) {
  const int64_t makespan = plan.predicted().makespan_ns();
  const double ratio = Ratio(makespan, best.makespan_ns);
  if (ratio < 1.005) return;
  worst_.Add(kind, ratio,
             absl::StrCat(name, "\nplan ", makespan, " ns\n", PassesOf(plan), "\noptimum ", best.makespan_ns,
                          " ns\n", best.text, "\njob: ", given.job.ShortDebugString(), "\n"));
}

void RandomJobsTest::Run(int seed, const RandomJobLimits& limits) {
  ++jobs_;
  const RandomPlanningCase given = MakeRandomCase(seed, limits);
  const std::string name = absl::StrCat("seed ", seed, "\n", given.Describe());
  const auto planner = Planner::Create(given.job);
  if (!planner.ok()) {
    ++impossible_jobs_;
    EXPECT_EQ(planner.status().code(), absl::StatusCode::kInvalidArgument) << name << planner.status();
    EXPECT_EQ(planner.status().message().substr(0, 4), "job.") << name << planner.status();
    return;
  }
  const auto batch = BatchFromProto(given.batch, (*planner)->job());
  ASSERT_TRUE(batch.ok()) << name << batch.status();
  const auto plan = (*planner)->MakePlan(given.batch);
  if (!plan.ok()) return CheckRefusal(**planner, *batch, plan.status(), name);
  ++planned_;
  const auto violations = CheckPlan(given.batch, *plan);
  ASSERT_TRUE(violations.empty()) << name << "rule " << violations[0].rule << ": " << violations[0].message;
  ASSERT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns()) << name << PassesOf(*plan);
  for (int rank = 0; rank < plan->programs_size(); ++rank) {
    const int64_t limit = (*planner)->job().memory_limits.Of(rank);
    EXPECT_EQ(plan->programs(rank).memory_limit_bytes(), limit) << name;
    EXPECT_LE(plan->predicted().ranks(rank).peak_memory_bytes(), limit) << name;
  }
  const Job& job = (*planner)->job();
  if (job.policy != Policy::kDynamic) return;
  gap_.Add(Ratio(plan->predicted().makespan_ns(), plan->lower_bound_ns()));
  if (IsSmall(job, *batch)) CompareWithOptimum(**planner, *batch, *plan, given, name);
}

TEST_F(RandomJobsTest, PlansAreSoundAndCloseToTheOptimum) {
  const int only = FromEnvironment("PENSTOCK_RANDOM_SEED", -1);
  const int count = only >= 0 ? only + 1 : FromEnvironment("PENSTOCK_RANDOM_JOBS", JobCount(2000));
  for (int seed = std::max(only, 0); seed < count && !HasFatalFailure(); ++seed) {
    RandomJobLimits limits;
    limits.slow_percent = 25;
    limits.slow_link_percent = 15;
    limits.rank_memory_percent = 25;
    limits.shares_percent = 20;
    limits.weights_percent = 50;
    limits.windows_percent = 25;
    limits.backward_forms_percent = 25;
    limits.calls_percent = 20;
    limits.fixed_step_percent = 30;
    limits.efficiency_percent = 25;
    // Every other one is small enough for brute force.
    if (seed % 2 == 1) {
      limits.samples = kBruteForceSamples;
      limits.pipeline = 3;
      limits.replicas = 2;
      limits.layers = 6;
    }
    Run(seed, limits);
  }
  worst_.Write();
  std::cout << jobs_ << " jobs: " << impossible_jobs_ << " whose parameters do not fit, " << planned_
            << " planned, " << refused_ << " refused (" << refusals_tried_ << " of them tried, "
            << wrongly_refused_ << " have a plan); too large for brute force: " << incomplete_
            << ", and with tight memory " << incomplete_tight_ << "\n";
  gap_.Print("plan above lower bound");
  split_.Print("plan above optimum, split backward");
  whole_.Print("plan above optimum, whole backward");
  fixed_.Print("plan above optimum, 1F1B");
  tight_.Print("plan above optimum, tight memory");
  beside_empty_.Print("plan above optimum, a replica left empty");
  bound_.Print("optimum above lower bound");
  EXPECT_GT(planned_, jobs_ / 2);
  EXPECT_EQ(wrongly_refused_, 0);
  for (Distribution* kind : {&split_, &whole_, &fixed_, &tight_}) ExpectClose(*kind);
}

}  // namespace
}  // namespace penstock::core
