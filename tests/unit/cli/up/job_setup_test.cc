#include "planner/cli/up/job_setup.h"

#include <gtest/gtest.h>

#include "planner/cli/up/run_data.h"
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

TEST(JobSetupTest, OtherDevicesAreNotGpus) {
  for (const char* device : {"cpu", "simulated"}) {
    UpOptions options;
    options.device = *ParseDevices(device);
    v1::JobSpec job = JobOnGpusOf(1000);
    AddMemoryLimitOfGpus(options, &job);
    EXPECT_EQ(job.planning().memory_limit_bytes(), 0) << device;
  }
}

TEST(RunDataTest, SaysWhatIsLostToTheLimitsOfLength) {
  const TemporaryFolder folder;
  UpOptions options;
  options.lengths = folder.Write("lengths.csv", "input_tokens,target_tokens\n0,5\n2,8\n1000,500\n");
  options.rows = "0:3";
  options.limits = {.max_length = 8};
  const auto data = RunData::Open(options);
  ASSERT_TRUE(data.ok()) << data.status();
  const auto cut = data->SummarizeCut(options, v1::ARCHITECTURE_GPT);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(DescribeCut(*cut),
            "data: 3 samples, 1,515 tokens, of which 18 are learnt; longer than --max-length (--max-input, "
            "--max-target): 2 are cut, "
            "0 dropped, "
            "and 1,494 tokens lost (98.6 %)");
  options.limits = {.max_length = 8, .cut = Cut::kDrop};
  EXPECT_EQ(data->SummarizeCut(options, v1::ARCHITECTURE_GPT)->dropped_samples, 2u);
  options.limits = {.max_length = 2000};
  EXPECT_EQ(DescribeCut(*data->SummarizeCut(options, v1::ARCHITECTURE_GPT)),
            "data: 3 samples, 1,515 tokens, of which 512 are learnt");
  options.limits = {.max_length = 4, .cut = Cut::kDrop};
  EXPECT_FALSE(data->SummarizeCut(options, v1::ARCHITECTURE_GPT).ok());
}

TEST(RunDataTest, SaysOfWhatNothingIsLearnt) {
  const TemporaryFolder folder;
  UpOptions options;
  options.lengths = folder.Write("lengths.csv", "input_tokens,target_tokens\n0,5\n2,8\n7,0\n0,1\n");
  options.rows = "0:4";
  options.limits = {.max_length = 100};
  const auto data = RunData::Open(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(DescribeCut(*data->SummarizeCut(options, v1::ARCHITECTURE_GPT)),
            "data: 4 samples, 23 tokens, of which 12 are learnt\ndata: nothing is learnt of 2 samples: they "
            "have no target, or one token and no input");
  EXPECT_EQ(DescribeCut(*data->SummarizeCut(options, v1::ARCHITECTURE_T5)),
            "data: 4 samples, 23 tokens, of which 14 are learnt\ndata: nothing is learnt of 1 samples: they "
            "have no target, or one token and no input\ndata: 2 samples have no input: the encoder reads "
            "nothing of them, and the decoder learns the target alone");
}

}  // namespace
}  // namespace penstock::cli
