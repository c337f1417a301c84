#include "planner/cli/up/rank_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/files/files.h"
#include "planner/cli/model/model_folder.h"
#include "tests/support/checkpoint_part.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sample i has i tokens more than the first one, all of them learnt.
class AscendingLengths : public IndexedDataset {
 public:
  explicit AscendingLengths(size_t size, uint32_t shortest = 1) : size_(size), shortest_(shortest) {}
  size_t size() const override { return size_; }
  size_t bytes_per_token() const override { return 2; }
  SampleLength Length(size_t i) const override {
    return {.input = 0, .target = shortest_ + static_cast<uint32_t>(i)};
  }
  absl::StatusOr<std::vector<int32_t>> Tokens(size_t i) const override {
    return std::vector<int32_t>(shortest_ + i);
  }

 private:
  const size_t size_;
  const uint32_t shortest_;
};

class OneSampleBatches : public BatchSource {
 public:
  v1::Batch Make(uint64_t iteration) override {
    v1::Batch batch;
    batch.set_iteration(iteration);
    batch.add_samples()->set_target_tokens(7);
    return batch;
  }
};

std::vector<uint64_t> IdsOf(const v1::Batch& batch) {
  std::vector<uint64_t> ids;
  for (const v1::Sample& sample : batch.samples()) ids.push_back(sample.sample_id());
  return ids;
}

TEST(ValidationBatchTest, TakesSamplesSpreadOverEachDatasetBehindWhatIsTrainedOn) {
  const AscendingLengths first(10), second(3);
  const auto batch =
      ValidationBatch({{.path = "a", .dataset = &first}, {.path = "b", .dataset = &second, .task = 2}},
                      {.samples = 4, .first_id = 100, .cut = {.limits = {.max_length = 50}}});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(IdsOf(*batch), ElementsAre(100, 102, 105, 107, 110, 111, 112));
  EXPECT_EQ(batch->samples(1).target_tokens(), 3u);
  EXPECT_EQ(batch->samples(1).task(), 0u);
  EXPECT_EQ(batch->samples(4).task(), 2u);
  EXPECT_FALSE(batch->samples(0).has_loss_weight());
}

TEST(ValidationBatchTest, NamesADatasetOfWhichNothingIsLeft) {
  const AscendingLengths data(3, /*shortest=*/51);
  const auto batch = ValidationBatch({{.path = "data/long", .dataset = &data}},
                                     {.cut = {.limits = {.max_length = 50, .cut = Cut::kDrop}}});
  EXPECT_THAT(std::string(batch.status().message()),
              HasSubstr("--validation: nothing is left of 'data/long'"));
}

TEST(ValidatedBatchesTest, ValidatesAfterEverySoManyIterationsAndAfterTheLast) {
  v1::Batch validation;
  validation.add_samples()->set_target_tokens(9);
  ValidatedBatches batches(std::make_unique<OneSampleBatches>(), validation, {.every = 3, .iterations = 8});
  std::vector<uint64_t> validated;
  for (uint64_t iteration = 0; iteration < 8; ++iteration) {
    const v1::Batch batch = batches.Make(iteration);
    EXPECT_EQ(batch.samples_size(), 1);
    if (!batch.has_validation()) continue;
    validated.push_back(iteration);
    EXPECT_EQ(batch.validation().iteration(), iteration);
    EXPECT_EQ(batch.validation().samples(0).target_tokens(), 9u);
  }
  EXPECT_THAT(validated, ElementsAre(2, 5, 7));
}

TEST(TasksWithValidationTest, AreThoseOfTrainingAndBehindThemThoseOfValidationAlone) {
  EXPECT_THAT(TasksWithValidation({}, {"a"}), ElementsAre());
  EXPECT_THAT(TasksWithValidation({"a", "b"}, {"c"}), ElementsAre("a", "b"));
  EXPECT_THAT(TasksWithValidation({}, {"a", "b"}), ElementsAre("training", "a", "b"));
  EXPECT_THAT(TasksWithValidation({"a", "b"}, {"b", "c"}), ElementsAre("a", "b", "c"));
}

class RankValidationTest : public ::testing::Test {
 protected:
  RankValidationTest() {
    v1::ModelSpec model;
    model.set_layers(3);
    EXPECT_TRUE(WriteModel(folder_.Path("run"), model).ok());
    folder_.Write("run/hugging_face/tokenizer.json", "kept");
    auto best = BestCheckpoint::Open(folder_.Path("run"), 0);
    EXPECT_TRUE(best.ok()) << best.status();
    validation_.emplace(std::vector<std::string>{"training", "flan"}, folder_.Path("run/checkpoints"),
                        *std::move(best));
  }

  void Checkpoint(uint64_t next_iteration) const {
    const CheckpointManifest of = {
        .job_id = "job", .next_iteration = next_iteration, .ranks = 1, .pipeline = 1, .data = 1};
    const std::string folder = folder_.Path("run/checkpoints");
    ASSERT_TRUE(WritePart(folder, 0, PartOf("part"), of, RealFolderChanges()).ok());
    ASSERT_TRUE(CompleteCheckpoint(folder, next_iteration, /*keep=*/2, RealFolderChanges()).ok());
  }

  std::optional<ValidatedCheckpoint> Found(uint64_t iteration, double loss) {
    v1::IterationSummary summary;
    summary.set_iteration(iteration);
    summary.mutable_validation()->set_loss(loss);
    return validation_->Add(summary);
  }

  TemporaryFolder folder_;
  std::optional<RankValidation> validation_;
};

TEST_F(RankValidationTest, KeepsTheBestCheckpointAsSoonAsItIsComplete) {
  EXPECT_TRUE(Found(4, 3.0)->best);
  ASSERT_TRUE(validation_->Keep().ok());
  EXPECT_FALSE(validation_->kept().has_value());
  Checkpoint(5);
  ASSERT_TRUE(validation_->Keep().ok());
  ASSERT_TRUE(validation_->kept().has_value());
  EXPECT_EQ(validation_->kept()->next_iteration, 5u);
  const auto record = ReadValidationRecord(validation_->best().folder() + "/validation.json");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->loss, 3.0);
  EXPECT_FALSE(Found(9, 3.5)->best);
  Checkpoint(10);
  ASSERT_TRUE(validation_->Keep().ok());
  EXPECT_EQ(validation_->kept()->next_iteration, 5u);
}

TEST_F(RankValidationTest, KeepsTheBestOfThoseThatHaveACheckpoint) {
  Found(4, 3.0);
  Checkpoint(5);
  ASSERT_TRUE(validation_->Keep().ok());
  EXPECT_TRUE(Found(6, 2.0)->best) << "of parameters that are not written";
  EXPECT_FALSE(Found(9, 2.5)->best);
  Checkpoint(10);
  ASSERT_TRUE(validation_->Keep().ok());
  EXPECT_EQ(validation_->kept()->next_iteration, 10u);
  EXPECT_EQ(validation_->best().best()->loss, 2.0);
}

TEST_F(RankValidationTest, CountsThoseThatAreNoBetterAndTakesNoNumberForNoBetter) {
  EXPECT_FALSE(Found(1, std::nan(""))->best);
  EXPECT_EQ(validation_->best().worse_in_a_row(), 1u);
  EXPECT_TRUE(Found(2, 3.0)->best);
  EXPECT_EQ(validation_->best().worse_in_a_row(), 0u);
  EXPECT_FALSE(Found(3, std::nan(""))->best);
  EXPECT_FALSE(Found(4, 3.0)->best);
  EXPECT_EQ(validation_->best().worse_in_a_row(), 2u);
  EXPECT_FALSE(validation_->Add(v1::IterationSummary()).has_value());
}

TEST_F(RankValidationTest, NamesTasksWhereThereAreSeveral) {
  v1::IterationSummary summary;
  summary.mutable_validation()->set_loss(2);
  for (uint32_t task = 0; task < 2; ++task) {
    v1::TaskLoss* const of = summary.mutable_validation()->add_tasks();
    of->set_task(task);
    of->set_loss(2.5 + task);
    of->set_weight(10);
  }
  const std::optional<ValidatedCheckpoint> found = validation_->Add(summary);
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->tasks.size(), 2u);
  EXPECT_EQ(found->tasks[1].task, "flan");
  EXPECT_EQ(found->tasks[1].loss, 3.5);
}

}  // namespace
}  // namespace penstock::cli
