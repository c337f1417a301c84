#include "planner/cli/up/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/dataset/dataset_tokenizer.h"
#include "common/dataset/indexed_dataset_writer.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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
            "have no target, or one token and no input, or their tokens weigh nothing");
  EXPECT_EQ(DescribeCut(*data->SummarizeCut(options, v1::ARCHITECTURE_T5)),
            "data: 4 samples, 23 tokens, of which 14 are learnt\ndata: nothing is learnt of 1 samples: they "
            "have no target, or one token and no input, or their tokens weigh nothing\ndata: 2 samples have "
            "no input: the encoder reads "
            "nothing of them, and the decoder learns the target alone");
}

class MixtureDataTest : public ::testing::Test {
 protected:
  // So many samples of `input` and `target` tokens, all of them `token`.
  std::string Dataset(const std::string& name, int samples, size_t input, size_t target,
                      int32_t token = 7) const {
    auto writer = IndexedDatasetWriter::Create(folder_.Path(name), {});
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (int i = 0; i < samples; ++i) {
      EXPECT_TRUE(
          (*writer)->Add(std::vector<int32_t>(input, token), std::vector<int32_t>(target, token)).ok());
    }
    EXPECT_TRUE((*writer)->Finish().ok());
    return folder_.Path(name);
  }

  static UpOptions Options(const std::string& mix) {
    UpOptions options;
    const auto tasks = ParseMixture(mix);
    EXPECT_TRUE(tasks.ok()) << tasks.status();
    options.mix = tasks.value_or(std::vector<MixtureTask>());
    options.limits.max_length = 100;
    options.global_batch = 10;
    return options;
  }

  static RunData Open(const UpOptions& options) {
    auto data = RunData::Open(options);
    EXPECT_TRUE(data.ok()) << data.status();
    return *std::move(data);
  }

  UpOptions TwoTasks() const {
    return Options(Dataset("flan", 30, 4, 3) + "=7," + Dataset("code", 50, 0, 9) + "=3");
  }

  const TemporaryFolder folder_;
};

TEST_F(MixtureDataTest, WeightsAreSharesOfTheSamplesWhoseIdsTellTheTask) {
  const UpOptions options = TwoTasks();
  const RunData data = Open(options);
  EXPECT_EQ(data.samples(), 80u);
  ASSERT_THAT(data.TaskEnds(), SizeIs(2));
  EXPECT_EQ(data.TaskEnds()[1].task, "code");
  const auto batches = *data.MakeBatches(options, v1::ARCHITECTURE_GPT);
  std::multiset<uint64_t> seen;
  for (uint64_t iteration = 0; iteration < 30; ++iteration) {
    const v1::Batch batch = batches->Make(iteration);
    const auto counts = CountTasks(batch, data.TaskEnds(), LearntByLength(v1::ARCHITECTURE_GPT));
    EXPECT_EQ(counts[0].samples, 7u);
    EXPECT_EQ(counts[1].samples, 3u);
    EXPECT_EQ(counts[0].tokens, 7u * 7);
    EXPECT_EQ(counts[1].loss_tokens, 3u * 8);
    for (const v1::Sample& sample : batch.samples()) seen.insert(sample.sample_id());
  }
  // 210 samples of 30, 90 of 50: each task is walked through by itself.
  for (uint64_t id = 0; id < 30; ++id) EXPECT_EQ(seen.count(id), 7u) << id;
  for (uint64_t id = 30; id < 80; ++id) EXPECT_TRUE(seen.count(id) == 1 || seen.count(id) == 2) << id;
}

TEST_F(MixtureDataTest, AnyBatchIsTheSameAfterARestart) {
  const UpOptions options = TwoTasks();
  const RunData data = Open(options);
  const auto walked = *data.MakeBatches(options, v1::ARCHITECTURE_GPT);
  for (uint64_t iteration = 0; iteration < 40; ++iteration) {
    const std::string batch = walked->Make(iteration).SerializeAsString();
    EXPECT_EQ((*data.MakeBatches(options, v1::ARCHITECTURE_GPT))->Make(iteration).SerializeAsString(), batch);
  }
}

TEST_F(MixtureDataTest, SaysWhatEachTaskWillSee) {
  const RunData data = Open(TwoTasks());
  const auto tasks = *data.OutlookOfTasks({.limits = {.max_length = 8, .cut = Cut::kDrop}});
  ASSERT_THAT(tasks, SizeIs(2));
  EXPECT_EQ(tasks[0].share, 0.7);
  EXPECT_EQ(tasks[0].tokens, 210u);
  EXPECT_EQ(tasks[0].dropped_samples, 0u);
  EXPECT_EQ(tasks[1].dropped_samples, 50u);
}

TEST_F(MixtureDataTest, DataThatDoesNotFitIsNamed) {
  const std::string pairs = Dataset("pairs", 2, 4, 3);
  const std::string text = Dataset("text", 2, 0, 30, 500);
  const UpOptions options = Options(pairs + "=1," + text + "=1");
  const RunData data = Open(options);
  EXPECT_TRUE(data.SummarizeCut(options, v1::ARCHITECTURE_GPT).ok());
  EXPECT_THAT(std::string(data.SummarizeCut(options, v1::ARCHITECTURE_T5).status().message()),
              AllOf(HasSubstr("--mix: no sample of '" + text), HasSubstr("data for a decoder alone")));
  UpOptions dropping = options;
  dropping.limits = {.max_length = 20, .cut = Cut::kDrop};
  EXPECT_THAT(std::string(data.SummarizeCut(dropping, v1::ARCHITECTURE_GPT).status().message()),
              HasSubstr("--cut drop: every sample of '" + text));
  EXPECT_THAT(std::string(data.CheckVocab("--init-from", 100).message()),
              AllOf(HasSubstr("--init-from"), HasSubstr(text), HasSubstr("another tokenizer")));
  EXPECT_TRUE(data.CheckVocab("--init-from", 501).ok());
  EXPECT_EQ(*data.Vocab(options), 501u);
  EXPECT_THAT(std::string(RunData::Open(Options(pairs + "=1,absent=1")).status().message()),
              AllOf(HasSubstr("--mix"), HasSubstr("absent.idx")));
}

TEST_F(MixtureDataTest, DatasetsOfDifferentTokenizersAreRefused) {
  const UpOptions options = TwoTasks();
  for (const char* name : {"flan", "code"}) {
    FakeTokenizer tokenizer;
    tokenizer.mutable_info().vocab = name[0];
    ASSERT_TRUE(RecordTokenizer(folder_.Path(name), &tokenizer).ok());
  }
  EXPECT_THAT(std::string(RunData::Open(options).status().message()),
              AllOf(HasSubstr("--mix: '" + folder_.Path("code")), HasSubstr("another tokenizer")));
}

TEST_F(MixtureDataTest, WhatItIsMadeOfIsRecorded) {
  const UpOptions options = TwoTasks();
  const auto record = Open(options).Describe(options, v1::ARCHITECTURE_GPT);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->samples, 80u);
  ASSERT_THAT(record->mix, SizeIs(2));
  EXPECT_EQ(record->mix[0].task, "flan");
  EXPECT_EQ(record->mix[0].weight, 7);
  const UpOptions swapped = Options(folder_.Path("code") + "=3," + folder_.Path("flan") + "=7");
  EXPECT_NE(Open(swapped).Describe(swapped, v1::ARCHITECTURE_GPT)->crc32, record->crc32);
}

}  // namespace
}  // namespace penstock::cli
