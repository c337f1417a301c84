// Strategies as people write them.
#include "planner/cli/strategy_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/mesh/mesh_ranks.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) { return std::string(ReadStrategies(text).status().message()); }

TEST(StrategyListTest, ReadsMeshesBetweenSemicolons) {
  const auto strategies = ReadStrategies("pp 2 x dp 4; pp 1 x dp 2 x cp 4 ;dp 2 x tp 2 x cp 2, ep 4;");
  ASSERT_TRUE(strategies.ok()) << strategies.status();
  ASSERT_EQ(strategies->size(), 3);
  const v1::Mesh& second = (*strategies)[1].meshes(0).mesh();
  EXPECT_EQ(second.SerializeAsString(), MakeMesh(1, 2, 1, 4).SerializeAsString());
  const v1::Mesh& third = (*strategies)[2].meshes(0).mesh();
  EXPECT_EQ(third.SerializeAsString(), MakeMesh(1, 2, 2, 2, 4).SerializeAsString());
}

TEST(StrategyListTest, ReadsStagesBehindAMesh) {
  const auto strategies = ReadStrategies("pp 2 x dp 1, layers 3,5,5,3 on 0,1,1,0");
  ASSERT_TRUE(strategies.ok()) << strategies.status();
  const v1::StrategyMesh& mesh = strategies->front().meshes(0);
  EXPECT_THAT(mesh.layers_per_stage(), ElementsAre(3, 5, 5, 3));
  EXPECT_THAT(mesh.rank_of_stage(), ElementsAre(0, 1, 1, 0));
}

TEST(StrategyListTest, ReadsAFileWithCommentsAndOneStrategyALine) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("pool.txt");
  std::ofstream(path) << "# for short samples\npp 1 x dp 4\n\npp 1 x dp 1 x cp 4  # long ones\n";
  const auto strategies = ReadStrategies(path);
  ASSERT_TRUE(strategies.ok()) << strategies.status();
  EXPECT_EQ(StrategyNames(*strategies), "pp 1 x dp 4; pp 1 x dp 1 x cp 4");
}

TEST(StrategyListTest, ReadsMeshesSideBySide) {
  const auto strategies = ReadStrategies("tp 4 + pp 2 x dp 3, layers 3,5+dp 2; pp 12");
  ASSERT_TRUE(strategies.ok()) << strategies.status();
  ASSERT_EQ(strategies->front().meshes_size(), 3);
  EXPECT_EQ(RanksOf(strategies->front()), 12);
  EXPECT_EQ(StrategyNames(*strategies),
            "pp 1 x dp 1 x tp 4 + pp 2 x dp 3, layers 3,5 + pp 1 x dp 2; pp 12 x dp 1");
  EXPECT_THAT(ErrorOf("tp 4 + "), HasSubstr("a word without a number"));
}

TEST(StrategyListTest, WhatIsWrittenIsReadAgain) {
  const std::string text = "pp 2 x dp 1 x cp 2 x tp 4, layers 3,5 on 0,1; pp 1 x dp 4 x cp 4, ep 4";
  const auto strategies = ReadStrategies(text);
  ASSERT_TRUE(strategies.ok()) << strategies.status();
  EXPECT_EQ(StrategyNames(*strategies), text);
}

TEST(StrategyListTest, ErrorsQuoteTheStrategyAndSayWhatIsWrong) {
  EXPECT_THAT(ErrorOf("pool"), HasSubstr("'pool' is no file, and no strategy"));
  EXPECT_THAT(ErrorOf("pp 2; rows 4"), HasSubstr("'rows 4': 'rows' is none of pp, dp"));
  EXPECT_THAT(ErrorOf("pp two"), HasSubstr("'two' is not a number"));
  EXPECT_THAT(ErrorOf("pp 2 x dp"), HasSubstr("a word without a number"));
  EXPECT_THAT(ErrorOf("pp 0"), HasSubstr("pp is 0"));
  EXPECT_THAT(ErrorOf("pp 2 x pp 2"), HasSubstr("pp is given twice"));
  EXPECT_THAT(ErrorOf("pp 1,2"), HasSubstr("pp has 2 numbers"));
  EXPECT_THAT(ErrorOf(" ; "), HasSubstr("there is none"));
  EXPECT_EQ(ReadStrategies("pool").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace penstock::cli
