#include "planner/cli/profile/measured_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/files/files.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/profile_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/cli/profile/some_profile.h"

namespace penstock::cli {
namespace {

using ::testing::HasSubstr;

class MeasuredModelTest : public testing::Test {
 protected:
  TemporaryFolder folder_;
};

TEST_F(MeasuredModelTest, IsThatOfACostProfile) {
  const std::string path = folder_.Path("profile.json");
  ASSERT_TRUE(WriteProfileFile(SomeProfile(), path).ok());
  const auto model = ReadMeasuredModel(path, 0);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->hidden(), 8U);
  EXPECT_EQ(model->max_sequence_length(), 300U);
}

TEST_F(MeasuredModelTest, IsThatOfARun) {
  ASSERT_TRUE(WriteModel(folder_.path(), SomeProfile().model()).ok());
  const auto model = ReadMeasuredModel(folder_.path(), 200);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->max_sequence_length(), 200U);
}

TEST_F(MeasuredModelTest, HasNoMorePositionsThanItLearned) {
  ASSERT_TRUE(WriteModel(folder_.path(), SomeProfile().model()).ok());
  EXPECT_THAT(std::string(ReadMeasuredModel(folder_.path(), 301).status().message()),
              HasSubstr("--max-length 301: the model has 300"));
}

TEST_F(MeasuredModelTest, NamesAFileThatIsNone) {
  EXPECT_THAT(std::string(ReadMeasuredModel(folder_.Path("none.json"), 0).status().message()),
              HasSubstr("none.json"));
  ASSERT_TRUE(WriteFileAtomically(folder_.Path("empty.json"), "{}").ok());
  EXPECT_THAT(std::string(ReadMeasuredModel(folder_.Path("empty.json"), 0).status().message()),
              HasSubstr("--model"));
}

}  // namespace
}  // namespace penstock::cli
