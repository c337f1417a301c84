// Reading profiles, and the strict formulas of the analytic ones.
#include "planner/core/cost/profile_reader.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "planner/core/cost/closed_form.h"
#include "tests/unit/core/analytic_example.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const v1::LayerCost& Layer(const v1::ProfileFile& file, const std::string& name) {
  for (const v1::LayerCost& layer : file.profile().layers()) {
    if (layer.name() == name) return layer;
  }
  ADD_FAILURE() << "no layer '" << name << "'";
  return v1::LayerCost::default_instance();
}

TEST(MatchFormulaTest, NumbersAreReadWhereThePatternHasAHash) {
  const auto numbers =
      MatchFormula("# + #*t*H^2 / # * 1e3", "0.15 + 24*t*H^2 / 200e12 * 1e3 with t = tokens");
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_THAT(*numbers, ElementsAre(0.15, 24, 200e12));
}

TEST(MatchFormulaTest, AnotherFormIsRefusedWithThePlaceWhereItDeparts) {
  const auto numbers = MatchFormula("#*t*H", "34*t*G");
  EXPECT_EQ(numbers.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(numbers.status().message()), HasSubstr("at 'G'"));
  EXPECT_FALSE(MatchFormula("#*t", "34*t*2").ok());
  EXPECT_FALSE(MatchFormula("#*t", "x*t").ok());
}

TEST(ProfileReaderTest, AnAnalyticGptProfileBecomesClosedFormsAndTables) {
  const auto file = ParseProfile(AnalyticGptExample());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->model().architecture(), v1::ARCHITECTURE_GPT);
  EXPECT_EQ(file->model().layers(), 2);
  // Eight times the longest sequence of the grid.
  EXPECT_EQ(file->model().max_sequence_length(), 512);
  const v1::LayerCost& layer = Layer(*file, "layer");
  EXPECT_DOUBLE_EQ(layer.forward().fixed_ns(), 0.15e6);
  // 24 H^2 operations a token at 1e9 of them a second.
  EXPECT_DOUBLE_EQ(layer.forward().target_token_ns(), 24 * 10 * 10);
  EXPECT_DOUBLE_EQ(layer.forward().target_square_ns(), 2 * 10);
  EXPECT_DOUBLE_EQ(layer.forward().half_efficiency_tokens(), 512);
  EXPECT_DOUBLE_EQ(layer.backward_ratio_selective(), 2.15);
  EXPECT_DOUBLE_EQ(layer.stored_full().target_token_bytes(), 20);
  EXPECT_EQ(layer.forward_ms().values_size(), 4);
  EXPECT_DOUBLE_EQ(file->profile().state_bytes_per_parameter_byte(), 8);
  EXPECT_DOUBLE_EQ(file->profile().sharded_state_bytes_per_parameter_byte(), 6);
  EXPECT_EQ(file->profile().cluster().memory_bytes(), 80'000'000'000);
  // Bits become bytes.
  EXPECT_DOUBLE_EQ(file->profile().cluster().intra_node_bytes_per_second(), 600e9);
}

TEST(ProfileReaderTest, AGridThatContradictsItsClosedFormIsRefused) {
  std::string json = AnalyticGptExample();
  const size_t place = json.find("\"24*t*H/1e6");
  ASSERT_EQ(place, std::string::npos);
  json.replace(json.find("0.15 + (24*t"), 12, "0.16 + (24*t");
  const auto file = ParseProfile(json);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()),
              HasSubstr("layer_forward_ms: at [1, 0, 32] the grid says"));
}

TEST(ProfileReaderTest, AMissingKeyIsNamed) {
  std::string json = AnalyticGptExample();
  json.replace(json.find("\"memory_mb\""), 11, "\"memory_xx\"");
  EXPECT_THAT(std::string(ParseProfile(json).status().message()), HasSubstr("cluster.memory_mb"));
}

TEST(ProfileReaderTest, NumbersThatAreNoCountsAreNamed) {
  const auto error = [](const std::string& from, const std::string& to) {
    std::string json = AnalyticGptExample();
    const size_t place = json.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    if (place != std::string::npos) json.replace(place, from.size(), to);
    return std::string(ParseProfile(json).status().message());
  };
  EXPECT_THAT(error("\"hidden\":10", "\"hidden\":-10"), HasSubstr("model.hidden: -10"));
  EXPECT_THAT(error("\"layers\":2", "\"layers\":2.5"), HasSubstr("model.layers: 2.5"));
  EXPECT_THAT(error("\"sequence_length\":[32,64]", "\"sequence_length\":[32,null]"),
              HasSubstr("grid.sequence_length: nan; must be a whole number"));
  EXPECT_THAT(error("\"sequence_length\":[32,64]", "\"sequence_length\":[]"),
              HasSubstr("grid.sequence_length is empty"));
  EXPECT_THAT(error("\"memory_mb\":80000", "\"memory_mb\":1e20"), HasSubstr("cluster: 1e+20 is too large"));
}

TEST(ProfileReaderTest, TheJsonFormOfAProfileFileIsRead) {
  v1::ProfileFile file;
  const v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
  *file.mutable_model() = job.model();
  *file.mutable_profile() = job.profile();
  std::string json;
  ASSERT_TRUE(google::protobuf::util::MessageToJsonString(file, &json).ok());
  const auto read = ParseProfile(json);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), file.SerializeAsString());
}

TEST(ProfileReaderTest, TextThatIsNoProfileIsRefused) {
  for (const char* text : {"", "[]", "{}", "{\"profile\": 3}", "{\"profile\": {\"nonsense\": 1}}"}) {
    EXPECT_EQ(ParseProfile(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace penstock::core
