#include "planner/cli/up/job_setup.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/dataset/indexed_dataset_writer.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

v1::JobSpec JobOnGpusOf(int64_t bytes) {
  v1::JobSpec job;
  job.mutable_profile()->mutable_cluster()->set_memory_bytes(bytes);
  return job;
}

TEST(JobSetupTest, OnGpusAJobIsPlannedWithAShareOfTheirMemory) {
  UpOptions options;
  options.device = *ParseDevices("cuda");
  v1::JobSpec job = JobOnGpusOf(1000);
  AddMemoryLimitOfGpus(options, &job);
  EXPECT_EQ(job.planning().memory_limit_bytes(), 850);
}

TEST(JobSetupTest, AMemoryLimitThatWasAskedForStays) {
  UpOptions options;
  options.device = *ParseDevices("cuda:0");
  v1::JobSpec job = JobOnGpusOf(1000);
  job.mutable_planning()->set_memory_limit_bytes(990);
  AddMemoryLimitOfGpus(options, &job);
  EXPECT_EQ(job.planning().memory_limit_bytes(), 990);
}

TEST(JobSetupTest, WhatAProfileSaysOfSingleRanksIsOfTheRanksThatARunBeganWith) {
  v1::ProfileFile file;
  file.mutable_profile()->add_slow_ranks()->set_rank(3);
  file.mutable_profile()->add_slow_links()->set_to(3);
  for (const bool fewer : {false, true}) {
    UpOptions options;
    options.on_fewer_ranks = fewer;
    v1::JobSpec job;
    ASSERT_TRUE(AddProfile(options, file, {}, &job).ok());
    EXPECT_EQ(job.profile().slow_ranks_size(), fewer ? 0 : 1);
    EXPECT_EQ(job.profile().slow_links_size(), fewer ? 0 : 1);
  }
}

TEST(JobSetupTest, OtherDevicesAreNotGpus) {
  for (const char* device : {"cpu", "simulated"}) {
    UpOptions options;
    options.device = *ParseDevices(device);
    v1::JobSpec job = JobOnGpusOf(1000);
    AddMemoryLimitOfGpus(options, &job);
    EXPECT_EQ(job.planning().memory_limit_bytes(), 0) << device;
  }
}

// 7 samples, of which one has 90 tokens.
class EpochsTest : public testing::Test {
 protected:
  EpochsTest() {
    options_.dataset = folder_.Path("data");
    auto writer = IndexedDatasetWriter::Create(options_.dataset, {});
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (int i = 0; i < 7; ++i) {
      const std::vector<int32_t> tokens(i == 3 ? 90 : 9, 1);
      EXPECT_TRUE((*writer)->Add({}, tokens).ok());
    }
    EXPECT_TRUE((*writer)->Finish().ok());
    options_.limits.max_length = 100;
    options_.global_batch = 4;
  }

  uint64_t Iterations(double epochs) {
    options_.epochs = epochs;
    const auto data = RunData::Open(options_);
    EXPECT_TRUE(data.ok()) << data.status();
    const absl::Status counted = CountIterations(*data, {}, &options_);
    EXPECT_TRUE(counted.ok()) << counted;
    return options_.iterations;
  }

  TemporaryFolder folder_;
  UpOptions options_;
};

TEST_F(EpochsTest, AreAsManyIterationsAsSeeEachSampleSoOften) {
  EXPECT_EQ(Iterations(1), 2) << "7 samples in batches of 4";
  EXPECT_EQ(Iterations(3), 6);
  EXPECT_EQ(Iterations(4), 7);
  EXPECT_EQ(Iterations(0.1), 1);
}

TEST_F(EpochsTest, AreOfTheSamplesThatTheLimitOfLengthLeaves) {
  options_.limits = {.max_length = 20, .cut = Cut::kDrop};
  EXPECT_EQ(Iterations(2), 3) << "6 samples are left";
}

TEST_F(EpochsTest, WithoutThemTheIterationsStay) {
  options_.iterations = 5;
  EXPECT_EQ(Iterations(0), 5);
}

}  // namespace
}  // namespace penstock::cli
