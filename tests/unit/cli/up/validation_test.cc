#include "planner/cli/up/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/files/files.h"
#include "planner/cli/model/model_folder.h"
#include "tests/support/checkpoint_part.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kDeadline = absl::Seconds(60);

// Evaluates as penstock-worker does: the loss is what the checkpoint's only part holds.
constexpr const char* kWorker = R"(#!/bin/sh
for flag; do case $flag in --checkpoint=*) folder=${flag#--checkpoint=};; esac; done
loss=$(cat "$folder/rank-0.safetensors")
[ "$loss" = broken ] && { echo "cannot read it" >&2; exit 1; }
echo "{\"samples\": 1, \"tokens\": 9, \"predicted_tokens\": 8, \"loss\": $loss}"
)";

class ValidationTest : public ::testing::Test {
 protected:
  ValidationTest() {
    std::filesystem::permissions(folder_.Write("worker", kWorker), std::filesystem::perms::owner_all);
    v1::ModelSpec model;
    model.set_layers(3);
    EXPECT_TRUE(WriteModel(folder_.Path("run"), model).ok());
    folder_.Write("run/hugging_face/tokenizer.json", "kept");
    std::filesystem::create_directories(folder_.Path("run/logs"));
  }

  void Open(uint64_t first_iteration = 0) {
    auto opened = Validation::Open({.worker = folder_.Path("worker"),
                                    .run_dir = folder_.Path("run"),
                                    .datasets = datasets_,
                                    .first_iteration = first_iteration});
    ASSERT_TRUE(opened.ok()) << opened.status();
    validation_ = *std::move(opened);
  }

  void Checkpoint(uint64_t next_iteration, const std::string& loss) const {
    const CheckpointManifest of = {
        .job_id = "job", .next_iteration = next_iteration, .ranks = 1, .pipeline = 1, .data = 1};
    const std::string folder = folder_.Path("run/checkpoints");
    ASSERT_TRUE(WritePart(folder, 0, PartOf(loss), of, RealFolderChanges()).ok());
    ASSERT_TRUE(CompleteCheckpoint(folder, next_iteration, /*keep=*/1, RealFolderChanges()).ok());
  }

  // What is found of the newest checkpoint, which is begun with here.
  absl::StatusOr<std::optional<ValidatedCheckpoint>> Found() const {
    absl::StatusOr<std::optional<ValidatedCheckpoint>> found = validation_->Step();
    const absl::Time deadline = absl::Now() + kDeadline;
    while (found.ok() && !found->has_value() && validation_->pending() && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(5));
      found = validation_->Step();
    }
    return found;
  }

  ValidatedCheckpoint Validated(uint64_t next_iteration, const std::string& loss) const {
    Checkpoint(next_iteration, loss);
    const auto found = Found();
    EXPECT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found.ok() && found->has_value());
    return found.ok() ? found->value_or(ValidatedCheckpoint()) : ValidatedCheckpoint();
  }

  std::string BestPart(uint64_t next_iteration) const {
    return ReadFile(absl::StrCat(validation_->best().folder(), "/checkpoints/iteration-", next_iteration,
                                 "/rank-0.safetensors"))
        .value_or("none");
  }

  const TemporaryFolder folder_;
  std::vector<NamedDataset> datasets_ = {{.name = "data", .path = "data"}};
  std::unique_ptr<Validation> validation_;
};

TEST_F(ValidationTest, KeepsTheBestCheckpointAsAModelOfItsOwn) {
  ASSERT_NO_FATAL_FAILURE(Open());
  EXPECT_FALSE(validation_->pending());
  const ValidatedCheckpoint first = Validated(10, "3.5");
  EXPECT_EQ(first.next_iteration, 10);
  EXPECT_EQ(first.loss, 3.5);
  EXPECT_EQ(first.tokens, 8);
  EXPECT_TRUE(first.best);
  EXPECT_TRUE(Validated(20, "3.25").best);
  EXPECT_FALSE(Validated(30, "3.25").best) << "no better";
  EXPECT_FALSE(Validated(40, "9").best);
  EXPECT_EQ(validation_->best().worse_in_a_row(), 2);
  EXPECT_EQ(validation_->best().best()->next_iteration, 20);
  // The run keeps its newest checkpoint alone.
  EXPECT_EQ(BestPart(20), "3.25");
  EXPECT_EQ(*ReadFile(validation_->best().folder() + "/hugging_face/tokenizer.json"), "kept");
  const auto model = OpenModelFolder(validation_->best().folder());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->next_iteration, 20);
  EXPECT_EQ(model->model.layers(), 3);
  EXPECT_TRUE(Validated(50, "3").best);
  EXPECT_EQ(validation_->best().worse_in_a_row(), 0);
}

TEST_F(ValidationTest, ARunThatGoesOnRemembersTheBestAndOneThatBeginsDoesNot) {
  ASSERT_NO_FATAL_FAILURE(Open());
  Validated(10, "3.5");
  ASSERT_NO_FATAL_FAILURE(Open(10));
  EXPECT_FALSE(validation_->pending()) << "it was looked at before";
  ASSERT_TRUE(validation_->best().best().has_value());
  EXPECT_EQ(validation_->best().best()->loss, 3.5);
  EXPECT_EQ(validation_->best().best()->next_iteration, 10);
  EXPECT_FALSE(Validated(20, "4").best);
  ASSERT_NO_FATAL_FAILURE(Open());
  EXPECT_FALSE(validation_->best().best().has_value());
  EXPECT_EQ(BestPart(10), "none");
}

TEST_F(ValidationTest, EveryTaskHasALossOfItsOwnAndTheBestOneKeepsThem) {
  folder_.Write("worker", R"(#!/bin/sh
case "$*" in *--dataset=a,second:data/b*) ;; *) echo "other data: $*" >&2; exit 1;; esac
echo '{"loss": 2, "predicted_tokens": 8, "datasets": [{"name": "a", "loss": 1, "predicted_tokens": 6},'
echo '{"name": "second", "loss": 5, "predicted_tokens": 2}]}'
)");
  datasets_ = {{.name = "a", .path = "a"}, {.name = "second", .path = "data/b"}};
  ASSERT_NO_FATAL_FAILURE(Open());
  Checkpoint(10, "");
  const auto found = Found();
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ((*found)->tasks.size(), 2u);
  EXPECT_EQ((*found)->tasks[1].task, "second");
  EXPECT_EQ((*found)->tasks[1].loss, 5);
  ASSERT_NO_FATAL_FAILURE(Open(10));
  ASSERT_EQ(validation_->best().best()->tasks.size(), 2u);
  EXPECT_EQ(validation_->best().best()->tasks[0].tokens, 6u);
}

TEST_F(ValidationTest, AnEvaluationThatFailsSaysWhyAndTheNextOneIsTried) {
  ASSERT_NO_FATAL_FAILURE(Open());
  Checkpoint(10, "broken");
  EXPECT_THAT(std::string(Found().status().message()),
              testing::AllOf(HasSubstr("checkpoint of iteration 10 exited with status 1"),
                             HasSubstr("cannot read it")));
  EXPECT_FALSE(validation_->pending());
  EXPECT_TRUE(Validated(20, "2").best);
}

}  // namespace
}  // namespace penstock::cli
