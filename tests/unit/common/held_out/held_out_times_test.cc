#include "common/held_out/held_out_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using ::testing::HasSubstr;

HeldOutTimes SomeTimes() {
  return {.passes = {{.part = HeldOutPart::kEncoderLayer,
                      .kind = HeldOutKind::kBackwardWeight,
                      .recompute = HeldOutRecompute::kSelective,
                      .packed = true,
                      .samples = {{.source = 3, .target = 5}, {.source = 0, .target = 7}},
                      .loss_tokens = 12,
                      .duration_ns = 1234.5}},
          .disturbance = "the thread had 40 % of its core"};
}

TEST(HeldOutTimes, AreReadAsTheyWereWritten) {
  const auto read = HeldOutTimesFromJson(ToJson(SomeTimes()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->disturbance, SomeTimes().disturbance);
  ASSERT_EQ(read->passes.size(), 1U);
  const HeldOutPass& pass = read->passes.front();
  EXPECT_EQ(pass.part, HeldOutPart::kEncoderLayer);
  EXPECT_EQ(pass.kind, HeldOutKind::kBackwardWeight);
  EXPECT_EQ(pass.recompute, HeldOutRecompute::kSelective);
  EXPECT_TRUE(pass.packed);
  ASSERT_EQ(pass.samples.size(), 2U);
  EXPECT_EQ(pass.samples[0].source, 3U);
  EXPECT_EQ(pass.samples[1].target, 7U);
  EXPECT_EQ(pass.loss_tokens, 12);
  EXPECT_EQ(pass.duration_ns, 1234.5);
}

TEST(HeldOutTimes, KeepWhatAContextRankHas) {
  HeldOutTimes times = SomeTimes();
  times.passes.front().context = 2;
  times.passes.front().contexts = 4;
  times.passes.front().samples = {{.target = 80, .span = 4}, {.target = 70, .span = 2}, {.target = 7}};
  const auto read = HeldOutTimesFromJson(ToJson(times));
  ASSERT_TRUE(read.ok()) << read.status();
  const HeldOutPass& pass = read->passes.front();
  EXPECT_EQ(pass.context, 2U);
  EXPECT_EQ(pass.contexts, 4U);
  EXPECT_EQ(pass.samples[0].span, 4U);
  EXPECT_EQ(pass.samples[1].span, 2U);
  EXPECT_EQ(pass.samples[2].span, 1U);
}

TEST(HeldOutTimes, OfContextRanksThatThereCannotBeAreRefused) {
  HeldOutTimes times = SomeTimes();
  times.passes.front().contexts = 3;
  EXPECT_FALSE(HeldOutTimesFromJson(ToJson(times)).ok());
  times.passes.front().contexts = 2;
  times.passes.front().context = 2;
  EXPECT_FALSE(HeldOutTimesFromJson(ToJson(times)).ok());
  times.passes.front().context = 0;
  times.passes.front().samples.front().span = 4;
  EXPECT_FALSE(HeldOutTimesFromJson(ToJson(times)).ok());
}

TEST(HeldOutTimes, OfAnotherFileAreRefused) {
  EXPECT_FALSE(HeldOutTimesFromJson("").ok());
  EXPECT_FALSE(HeldOutTimesFromJson("[]").ok());
  EXPECT_FALSE(HeldOutTimesFromJson(R"({"passes": []})").ok());
}

TEST(HeldOutTimes, NameTheirIncompletePass) {
  std::string json = ToJson(SomeTimes());
  json.replace(json.find("selective"), 9, "sometimes");
  EXPECT_THAT(std::string(HeldOutTimesFromJson(json).status().message()), HasSubstr("passes[0]"));
}

}  // namespace
}  // namespace penstock
