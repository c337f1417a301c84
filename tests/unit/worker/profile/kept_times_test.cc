#include "worker/profile/kept_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "common/files/files.h"
#include "tests/support/temporary_folder.h"

namespace penstock::worker {
namespace {

using testing::ElementsAre;

class KeptTimesTest : public testing::Test {
 protected:
  static constexpr const char* kModel = "a GPT on some processor";

  KeptTimes Open(const std::string& of = kModel, absl::Duration later = absl::ZeroDuration()) {
    absl::StatusOr<KeptTimes> kept = KeptTimes::Open(path_, of, now_ + later);
    EXPECT_TRUE(kept.ok()) << kept.status();
    return kept.ok() ? *std::move(kept) : KeptTimes();
  }

  void KeepTwoShapes() {
    KeptTimes kept = Open();
    ASSERT_TRUE(kept.Keep("layer/0", {.values = {1.25, 1e-9}, .spent_ns = 7}).ok());
    ASSERT_TRUE(kept.Keep("layer/1", {.values = {}, .spent_ns = 8}).ok());
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.Path("gpt.so-far");
  const absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
};

TEST_F(KeptTimesTest, WhatAnInterruptedMeasurementHasFoundIsThere) {
  KeepTwoShapes();
  const KeptTimes kept = Open(kModel, absl::Hours(23));
  EXPECT_EQ(kept.found(), 2);
  ASSERT_NE(kept.Find("layer/0"), nullptr);
  EXPECT_THAT(kept.Find("layer/0")->values, ElementsAre(1.25, 1e-9));
  EXPECT_EQ(kept.Find("layer/0")->spent_ns, 7);
  EXPECT_EQ(kept.Find("layer/2"), nullptr);
}

TEST_F(KeptTimesTest, AnotherInterruptionLosesNothing) {
  KeepTwoShapes();
  {
    KeptTimes kept = Open();
    ASSERT_TRUE(kept.Keep("layer/2", {.values = {3}}).ok());
  }
  EXPECT_EQ(Open().found(), 3);
}

TEST_F(KeptTimesTest, WhatIsOfAnotherModelOrOfYesterdayIsMeasuredAnew) {
  KeepTwoShapes();
  EXPECT_EQ(Open("a T5").found(), 0);
  KeepTwoShapes();
  EXPECT_EQ(Open(kModel, absl::Hours(25)).found(), 0);
}

TEST_F(KeptTimesTest, ALineThatWasCutOffIsAsThoughItWereNotThere) {
  KeepTwoShapes();
  std::ofstream(path_, std::ios::app) << R"({"what": "layer/2", "values": [1)";
  {
    KeptTimes kept = Open();
    EXPECT_EQ(kept.found(), 2);
    ASSERT_TRUE(kept.Keep("layer/3", {.values = {4}}).ok());
  }
  EXPECT_NE(Open().Find("layer/3"), nullptr);
}

TEST_F(KeptTimesTest, AFileOfSomethingElseIsMeasuredAnew) {
  for (const char* contents : {"", "no JSON", "[]\n", "{}\n", "{\"of\": 3, \"begun_unix\": \"\"}\n"}) {
    folder_.Write("gpt.so-far", contents);
    EXPECT_EQ(Open().found(), 0) << contents;
  }
}

TEST_F(KeptTimesTest, OneThatHasEndedLeavesNoFile) {
  KeptTimes kept = Open();
  ASSERT_TRUE(kept.Keep("layer/0", {}).ok());
  ASSERT_TRUE(kept.Remove().ok());
  EXPECT_TRUE(absl::IsNotFound(ReadFile(path_).status()));
}

TEST(KeptTimes, ThatKeepsNothingFindsNothing) {
  KeptTimes kept;
  EXPECT_TRUE(kept.Keep("layer/0", {.values = {1}}).ok());
  EXPECT_EQ(kept.Find("layer/0"), nullptr);
  EXPECT_TRUE(kept.Remove().ok());
}

}  // namespace
}  // namespace penstock::worker
