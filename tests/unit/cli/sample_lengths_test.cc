#include "planner/cli/sample_lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ParseRows, TakesTwoNumbers) {
  const auto rows = ParseRows("256:512");
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->first, 256u);
  EXPECT_EQ(rows->last, 512u);
}

TEST(ParseRows, NamesTheFlagWhenItIsWrong) {
  for (const char* text : {"", "5", "5:5", "6:5", "a:b", "-1:5", "1:2:3"}) {
    const auto rows = ParseRows(text);
    EXPECT_EQ(rows.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(rows.status().message()), HasSubstr("--rows is '" + std::string(text) + "'"));
  }
}

class ReadLengthsTest : public testing::Test {
 protected:
  absl::StatusOr<std::vector<SampleLength>> Read(const std::string& text, RowRange rows) {
    return ReadLengths(folder_.Write("lengths.csv", text), rows);
  }
  TemporaryFolder folder_;
};

TEST_F(ReadLengthsTest, FindsItsColumnsByName) {
  const auto lengths = Read("target_tokens,task,input_tokens\n1,\"a, b\",10\r\n2,c,20\n3,d,30\n", {1, 3});
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  ASSERT_EQ(lengths->size(), 2u);
  EXPECT_EQ((*lengths)[0].input, 20u);
  EXPECT_EQ((*lengths)[0].target, 2u);
  EXPECT_EQ((*lengths)[1].input, 30u);
}

TEST_F(ReadLengthsTest, KeepsCommasInQuotesTogether) {
  const auto lengths = Read("task,tokens\n\"a, b\",7\n", {0, 1});
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_EQ((*lengths)[0].target, 7u);
}

TEST_F(ReadLengthsTest, TakesOneColumnOfTokensAsLearntWhole) {
  const auto lengths = Read("tokens\n5\n", {0, 1});
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_EQ((*lengths)[0].input, 0u);
  EXPECT_EQ((*lengths)[0].target, 5u);
}

TEST_F(ReadLengthsTest, NamesFileAndLineOfWhatItCannotRead) {
  EXPECT_THAT(std::string(Read("tokens\n5\nx\n", {0, 2}).status().message()),
              AllOf(HasSubstr("lengths.csv', line 3"), HasSubstr("'x'")));
  EXPECT_THAT(std::string(Read("a,tokens\n5\n", {0, 1}).status().message()),
              AllOf(HasSubstr("line 2"), HasSubstr("column 2 is missing")));
  EXPECT_THAT(std::string(Read("length\n5\n", {0, 1}).status().message()),
              AllOf(HasSubstr("line 1"), HasSubstr("the header needs")));
  EXPECT_EQ(Read("tokens\n-5\n", {0, 1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Read("", {0, 1}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ReadLengthsTest, SaysHowManyRowsThereAre) {
  const auto lengths = Read("tokens\n5\n6\n", {0, 3});
  EXPECT_EQ(lengths.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(lengths.status().message()), HasSubstr("has 2: give smaller --rows"));
}

// Input and target of what is left of a decoder-only sample of at most 10 tokens; none: it is left out.
std::vector<uint32_t> LeftOf(uint32_t input, uint32_t target, Cut cut) {
  const auto left = CutToLimits({input, target}, v1::ARCHITECTURE_GPT, {.max_length = 10, .cut = cut});
  if (!left.has_value()) return {};
  return {left->input, left->target};
}

TEST(CutToLimits, SamplesThatFitStayWhole) {
  for (const Cut cut : {Cut::kInputEnd, Cut::kInputStart, Cut::kTargetEnd, Cut::kDrop}) {
    EXPECT_THAT(LeftOf(4, 6, cut), ElementsAre(4, 6));
    EXPECT_THAT(LeftOf(0, 10, cut), ElementsAre(0, 10));
  }
}

TEST(CutToLimits, CuttingTheInputKeepsWhatIsLearnt) {
  for (const Cut cut : {Cut::kInputEnd, Cut::kInputStart}) {
    EXPECT_THAT(LeftOf(8, 5, cut), ElementsAre(5, 5));
    EXPECT_THAT(LeftOf(8, 12, cut), ElementsAre(0, 10));
  }
}

TEST(CutToLimits, CuttingTheTargetKeepsTheInputAndSomethingToLearn) {
  EXPECT_THAT(LeftOf(4, 12, Cut::kTargetEnd), ElementsAre(4, 6));
  EXPECT_THAT(LeftOf(9, 5, Cut::kTargetEnd), ElementsAre(9, 1));
  EXPECT_THAT(LeftOf(12, 5, Cut::kTargetEnd), ElementsAre(9, 1));
  EXPECT_THAT(LeftOf(0, 12, Cut::kTargetEnd), ElementsAre(0, 10));
  EXPECT_THAT(LeftOf(12, 0, Cut::kTargetEnd), ElementsAre(10, 0));
}

TEST(CutToLimits, SamplesThatAreTooLongMayBeLeftOut) {
  EXPECT_THAT(LeftOf(8, 5, Cut::kDrop), IsEmpty());
  const LengthLimits sides = {.max_length = 20, .max_target = 30, .cut = Cut::kDrop};
  EXPECT_FALSE(CutToLimits({21, 5}, v1::ARCHITECTURE_T5, sides).has_value());
  EXPECT_FALSE(CutToLimits({5, 31}, v1::ARCHITECTURE_T5, sides).has_value());
  EXPECT_TRUE(CutToLimits({20, 30}, v1::ARCHITECTURE_T5, sides).has_value());
}

TEST(CutToLimits, CutsBothSidesOfEncoderDecoderSamples) {
  for (const Cut cut : {Cut::kInputEnd, Cut::kInputStart, Cut::kTargetEnd}) {
    const auto left =
        CutToLimits({100, 100}, v1::ARCHITECTURE_T5, {.max_length = 20, .max_target = 30, .cut = cut});
    EXPECT_EQ(left->input, 20u);
    EXPECT_EQ(left->target, 30u);
  }
}

}  // namespace
}  // namespace penstock::cli
