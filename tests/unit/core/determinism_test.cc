// The same input gives the same plan, bit for bit: with any number of threads, from a plan's own JSON, and in
// every build (golden_hashes.txt).
//
// After a change that is meant to change plans: PENSTOCK_UPDATE_GOLDEN=1 core_determinism_test
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/parallel/task_pool.h"
#include "planner/core/planner.h"
#include "tests/unit/core/golden_jobs.h"

namespace penstock::core {
namespace {

std::string HashOf(const v1::Plan& plan) {
  const std::string& hash = plan.content_hash();
  return absl::BytesToHexString(absl::string_view(hash.data(), hash.size()));
}

std::map<std::string, std::string> ReadGolden() {
  std::map<std::string, std::string> hashes;
  std::ifstream file(PENSTOCK_GOLDEN_FILE);
  std::string name;
  std::string hash;
  while (file >> name >> hash) hashes[name] = hash;
  return hashes;
}

TEST(DeterminismTest, EveryBuildMakesTheSamePlans) {
  std::map<std::string, std::string> hashes;
  for (const GoldenJob& job : GoldenJobs()) {
    const auto planner = Planner::Create(job.given.job);
    ASSERT_TRUE(planner.ok()) << job.name << planner.status();
    const auto plan = (*planner)->MakePlan(job.given.batch);
    ASSERT_TRUE(plan.ok()) << job.name << plan.status();
    hashes[job.name] = HashOf(*plan);
  }
  if (std::getenv("PENSTOCK_UPDATE_GOLDEN") != nullptr) {
    std::ofstream file(PENSTOCK_GOLDEN_FILE);
    for (const auto& [name, hash] : hashes) file << name << " " << hash << "\n";
    return;
  }
  EXPECT_EQ(hashes, ReadGolden())
      << "if plans are meant to change: PENSTOCK_UPDATE_GOLDEN=1 and commit the file";
}

// The last task first.
void RunBackwards(int count, absl::FunctionRef<void(int)> task) {
  for (int i = count - 1; i >= 0; --i) task(i);
}

TEST(DeterminismTest, AnyNumberOfThreadsMakesTheSamePlan) {
  for (const GoldenJob& job : JobsToRepeat()) {
    const auto planner = Planner::Create(job.given.job);
    ASSERT_TRUE(planner.ok()) << planner.status();
    const std::string serial = (*planner)->MakePlan(job.given.batch)->SerializeAsString();
    EXPECT_EQ((*planner)->MakePlan(job.given.batch, RunBackwards)->SerializeAsString(), serial) << job.name;
    for (const int threads : {1, 2, 7}) {
      TaskPool pool(threads);
      EXPECT_EQ((*planner)->MakePlan(job.given.batch, pool.AsFunction())->SerializeAsString(), serial)
          << job.name << " with " << threads << " threads";
    }
  }
}

TEST(DeterminismTest, AnyNumberOfThreadsMakesTheSamePlanForNoise) {
  for (const GoldenJob& job : JobsToRepeat()) {
    v1::JobSpec spec = job.given.job;
    spec.mutable_profile()->set_pass_noise(0.2);
    const auto planner = Planner::Create(spec);
    ASSERT_TRUE(planner.ok()) << planner.status();
    const std::string serial = (*planner)->MakePlan(job.given.batch)->SerializeAsString();
    EXPECT_EQ((*planner)->MakePlan(job.given.batch, RunBackwards)->SerializeAsString(), serial) << job.name;
    TaskPool pool(3);
    EXPECT_EQ((*planner)->MakePlan(job.given.batch, pool.AsFunction())->SerializeAsString(), serial)
        << job.name;
    // A planner that is started again.
    EXPECT_EQ((*Planner::Create(spec))->MakePlan(job.given.batch)->SerializeAsString(), serial) << job.name;
  }
}

// Enough for three batches; a choice takes as long as planning them many times.
constexpr int kTypicalSamples = 36;

TEST(DeterminismTest, AnyNumberOfThreadsChoosesTheSameStages) {
  int chosen = 0;
  for (const GoldenJob& job : JobsToRepeat()) {
    v1::JobSpec spec = job.given.job;
    v1::PlanningOptions& planning = *spec.mutable_planning();
    if (spec.mesh().pipeline() == 1 || planning.layers_per_stage_size() > 0) continue;
    planning.set_stage_split(v1::STAGE_SPLIT_AUTO);
    planning.clear_typical_samples();
    for (const v1::Sample& sample : job.given.batch.samples()) {
      if (planning.typical_samples_size() == kTypicalSamples) break;
      v1::SampleLengths& lengths = *planning.add_typical_samples();
      lengths.set_input_tokens(sample.input_tokens());
      lengths.set_target_tokens(sample.target_tokens());
    }
    planning.set_typical_batch_size(static_cast<uint32_t>(planning.typical_samples_size() + 2) / 3);
    const auto serial = Planner::Create(spec);
    ASSERT_TRUE(serial.ok()) << job.name << serial.status();
    ++chosen;
    TaskPool pool(3);
    for (const RunTasks& run_tasks : {RunTasks(RunBackwards), pool.AsFunction()}) {
      const auto planner = Planner::Create(spec, Planner::Explain::kChanges, run_tasks);
      ASSERT_TRUE(planner.ok()) << job.name << planner.status();
      EXPECT_EQ((*planner)->job().topology.shape().position_of_stage,
                (*serial)->job().topology.shape().position_of_stage)
          << job.name;
      ASSERT_EQ((*planner)->job().topology.shape().stages.size(),
                (*serial)->job().topology.shape().stages.size())
          << job.name;
      for (size_t stage = 0; stage < (*serial)->job().topology.shape().stages.size(); ++stage) {
        EXPECT_EQ((*planner)->job().topology.shape().stages[stage].layers(),
                  (*serial)->job().topology.shape().stages[stage].layers());
      }
    }
  }
  EXPECT_GE(chosen, 2);
}

TEST(DeterminismTest, ManyThreadsMayUseOnePlanner) {
  for (const GoldenJob& job : JobsToRepeat()) {
    const auto planner = Planner::Create(job.given.job);
    ASSERT_TRUE(planner.ok()) << planner.status();
    const std::string alone = (*planner)->MakePlan(job.given.batch)->SerializeAsString();
    TaskPool pool(2);
    std::vector<std::string> plans(3);
    std::vector<std::thread> threads;
    for (std::string& plan : plans) {
      threads.emplace_back(
          [&] { plan = (*planner)->MakePlan(job.given.batch, pool.AsFunction())->SerializeAsString(); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& plan : plans) EXPECT_EQ(plan, alone) << job.name;
  }
}

TEST(DeterminismTest, APlanIsMadeAgainFromItsOwnJson) {
  for (const GoldenJob& job : JobsToRepeat()) {
    const auto planner = Planner::Create(job.given.job);
    ASSERT_TRUE(planner.ok()) << planner.status();
    v1::PlannedBatch first;
    *first.mutable_batch() = job.given.batch;
    *first.mutable_plan() = *(*planner)->MakePlan(job.given.batch);
    std::string text;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(first, &text).ok());
    v1::PlannedBatch read;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(text, &read).ok());
    EXPECT_EQ(Planner::ContentHash(read.plan()), first.plan().content_hash()) << job.name;
    const auto again = (*planner)->MakePlan(read.batch());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->SerializeAsString(), read.plan().SerializeAsString()) << job.name;
  }
}

}  // namespace
}  // namespace penstock::core
