#include "worker/profile/profile_file.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "common/files/files.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

TEST(ProfileFile, HoldsWhatWasMeasured) {
  MeasuredProfile measured;
  measured.layer.forward = {.fixed_ns = 1,
                            .target_token_ns = 2,
                            .target_square_ns = 3,
                            .cross_ns = 5,
                            .half_efficiency_tokens = 4,
                            .packed_row_ns = 8,
                            .target_call_square_ns = 9,
                            .source_call_square_ns = 10,
                            .divided_row_ns = 11};
  measured.head.forward = {.target_token_ns = 5, .efficiency = {{16, 1.25}, {64, 1}}};
  measured.layer.backward = {{.target_square_ns = 7}, {.target_token_ns = 6}};
  measured.layer.backward_input_share = 0.625;
  measured.layer.backward_ratio_full = 2.5;
  measured.head.bytes.peak.target = 77;
  measured.layer.tensor = {{.degree = 2, .efficiency = 0.875, .forward = {.target_token_ns = 1.25}},
                           {.degree = 8, .efficiency = 0.5, .forward = {.target_token_ns = 0.5}}};
  measured.step = {.fixed_ns = 1500, .parameter_byte_ns = 0.25};
  measured.link = {5e9, 1234};
  measured.collective = {
      .link = {3e9, 4321}, .by_ranks = {{4, {2e9, 5000}}, {8, {1e9, 6000}}}, .overlap = 0.75};
  measured.copy_bytes_per_second = 2e9;
  v1::ModelSpec model;
  model.set_hidden(64);
  model.set_dtype(v1::DATA_TYPE_BFLOAT16);
  const std::string path = ::testing::TempDir() + "/profile_file_test/profile.json";
  ASSERT_TRUE(WriteProfileFile(model, ToProto(measured, model), path).ok());

  v1::ProfileFile file;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(*ReadFile(path), &file).ok());
  EXPECT_EQ(file.model().hidden(), 64U);
  ASSERT_EQ(file.profile().layers_size(), 2);
  const v1::LayerCost& layer = file.profile().layers(0);
  EXPECT_EQ(layer.name(), "layer");
  EXPECT_EQ(layer.forward().fixed_ns(), 1);
  EXPECT_EQ(layer.forward().target_token_ns(), 2);
  EXPECT_EQ(layer.forward().target_square_ns(), 3);
  EXPECT_EQ(layer.forward().packed_row_ns(), 8);
  EXPECT_EQ(layer.forward().target_call_square_ns(), 9);
  EXPECT_EQ(layer.forward().divided_row_ns(), 11);
  EXPECT_EQ(layer.forward().source_call_square_ns(), 10);
  EXPECT_EQ(layer.forward().half_efficiency_tokens(), 4);
  EXPECT_EQ(layer.forward().cross_ns(), 5);
  EXPECT_EQ(layer.backward_ratio_full(), 2.5);
  EXPECT_EQ(layer.backward_input_share(), 0.625);
  EXPECT_EQ(layer.backward_input().target_square_ns(), 7);
  EXPECT_EQ(layer.backward_weight().target_token_ns(), 6);
  EXPECT_FALSE(file.profile().layers(1).has_backward_input());
  EXPECT_EQ(layer.forward().efficiency_size(), 0);
  const v1::LayerTime& head = file.profile().layers(1).forward();
  ASSERT_EQ(head.efficiency_size(), 2);
  EXPECT_EQ(head.efficiency(0).tokens(), 16);
  EXPECT_EQ(head.efficiency(0).factor(), 1.25);
  ASSERT_EQ(layer.tensor_size(), 2);
  EXPECT_EQ(layer.tensor(0).degree(), 2U);
  EXPECT_EQ(layer.tensor(0).efficiency(), 0.875);
  EXPECT_EQ(layer.tensor(0).forward().target_token_ns(), 1.25);
  EXPECT_EQ(layer.tensor(1).degree(), 8U);
  EXPECT_EQ(file.profile().layers(1).name(), "head");
  EXPECT_EQ(file.profile().layers(1).peak().target_token_bytes(), 77);
  EXPECT_EQ(file.profile().cluster().intra_node_latency_ns(), 1234);
  for (const double speed : {file.profile().cluster().intra_node_collective_bytes_per_second(),
                             file.profile().cluster().inter_node_collective_bytes_per_second()}) {
    EXPECT_EQ(speed, 3e9);
  }
  EXPECT_EQ(file.profile().cluster().intra_node_collective_latency_ns(), 4321);
  EXPECT_EQ(file.profile().cluster().inter_node_collective_latency_ns(), 4321);
  ASSERT_EQ(file.profile().cluster().collective_speeds_size(), 2);
  EXPECT_EQ(file.profile().cluster().collective_speeds(1).ranks(), 8U);
  EXPECT_EQ(file.profile().cluster().collective_speeds(1).bytes_per_second(), 1e9);
  EXPECT_EQ(file.profile().cluster().collective_speeds(1).latency_ns(), 6000);
  EXPECT_EQ(file.profile().cluster().exchange_overlap(), 0.75);
  EXPECT_EQ(file.profile().cluster().copy_bytes_per_second(), 2e9);
  EXPECT_EQ(file.profile().optimizer_fixed_ns(), 1500);
  EXPECT_EQ(file.profile().optimizer_ns_per_parameter_byte(), 0.25);
  EXPECT_EQ(file.profile().bytes_per_element(), 2U);
}

TEST(ProfileFile, RecomputeNeverSavesTimeWhateverWasMeasured) {
  MeasuredProfile measured;
  measured.layer.backward_ratio_none = 2;
  measured.layer.backward_ratio_full = 0.5;
  EXPECT_EQ(ToProto(measured, v1::ModelSpec()).layers(0).backward_ratio_full(), 2);
}

TEST(ProfileFile, HasALayerWithoutExpertsBesideThatWithSome) {
  MeasuredProfile measured;
  measured.layer.parameter_bytes = 7;
  measured.dense.emplace().parameter_bytes = 5;
  const v1::CostProfile profile = ToProto(measured, v1::ModelSpec());
  ASSERT_EQ(profile.layers_size(), 3);
  EXPECT_EQ(profile.layers(0).name(), "layer");
  EXPECT_EQ(profile.layers(0).parameter_bytes(), 7);
  EXPECT_EQ(profile.layers(1).name(), "dense");
  EXPECT_EQ(profile.layers(1).parameter_bytes(), 5);
  EXPECT_EQ(profile.layers(2).name(), "head");
}

TEST(ProfileFile, OfT5HasEncoderAndDecoder) {
  MeasuredProfile measured;
  measured.encoder.emplace().bytes.stored_none.source = 11;
  measured.layer.bytes.stored_none = {.source = 12, .target = 13};
  const v1::CostProfile profile = ToProto(measured, v1::ModelSpec());
  ASSERT_EQ(profile.layers_size(), 3);
  EXPECT_EQ(profile.layers(0).name(), "encoder");
  EXPECT_EQ(profile.layers(0).stored_none().source_token_bytes(), 11);
  EXPECT_EQ(profile.layers(1).name(), "decoder");
  EXPECT_EQ(profile.layers(1).stored_none().source_token_bytes(), 12);
  EXPECT_EQ(profile.layers(1).stored_none().target_token_bytes(), 13);
}

TEST(ProfileFile, NamesTheModelFileThatIsBroken) {
  const std::string path = ::testing::TempDir() + "/profile_file_test/model.json";
  ASSERT_TRUE(WriteFileAtomically(path, R"({"hiden": 4})").ok());
  const auto model = ReadModelSpec(path);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr(path));
  EXPECT_EQ(ReadModelSpec(path + ".missing").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace penstock::worker
