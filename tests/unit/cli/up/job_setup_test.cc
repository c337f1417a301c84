#include "planner/cli/up/job_setup.h"

#include <gtest/gtest.h>

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

TEST(JobSetupTest, OtherDevicesAreNotGpus) {
  for (const char* device : {"cpu", "simulated"}) {
    UpOptions options;
    options.device = *ParseDevices(device);
    v1::JobSpec job = JobOnGpusOf(1000);
    AddMemoryLimitOfGpus(options, &job);
    EXPECT_EQ(job.planning().memory_limit_bytes(), 0) << device;
  }
}

}  // namespace
}  // namespace penstock::cli
