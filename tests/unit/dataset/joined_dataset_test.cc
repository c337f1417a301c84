#include "common/dataset/joined_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "common/dataset/indexed_dataset_writer.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

class JoinedDatasetTest : public ::testing::Test {
 protected:
  // Samples of 1, 2, ... tokens, which count from `first`.
  std::string Dataset(const std::string& name, size_t samples, int32_t first) const {
    auto writer = IndexedDatasetWriter::Create(folder_.Path(name), {});
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (size_t i = 0; i < samples; ++i) {
      std::vector<int32_t> tokens(i + 1);
      std::iota(tokens.begin(), tokens.end(), first);
      EXPECT_TRUE((*writer)->Add({}, tokens).ok());
    }
    EXPECT_TRUE((*writer)->Finish().ok());
    return folder_.Path(name);
  }

  const TemporaryFolder folder_;
};

TEST_F(JoinedDatasetTest, IdsGoOnFromOneDatasetToTheNext) {
  const auto joined = OpenJoined({Dataset("a", 2, 10), Dataset("none", 0, 0), Dataset("b", 3, 100000)});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ((*joined)->size(), 5u);
  EXPECT_EQ((*joined)->bytes_per_token(), 4u);
  EXPECT_THAT(*(*joined)->Tokens(1), ElementsAre(10, 11));
  EXPECT_THAT(*(*joined)->Tokens(2), ElementsAre(100000));
  EXPECT_THAT(*(*joined)->Tokens(4), ElementsAre(100000, 100001, 100002));
  EXPECT_EQ((*joined)->Length(3).target, 2u);
}

TEST_F(JoinedDatasetTest, OneThatIsMissingIsNamed) {
  const auto joined = OpenJoined({Dataset("a", 1, 10), folder_.Path("absent")});
  EXPECT_EQ(joined.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(joined.status().message()), ::testing::HasSubstr("absent"));
}

}  // namespace
}  // namespace penstock
