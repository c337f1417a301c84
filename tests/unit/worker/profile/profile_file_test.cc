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
  measured.layer.forward = {1, 2, 3, 4};
  measured.layer.backward_ratio_full = 2.5;
  measured.head.bytes.peak = 77;
  measured.link = {5e9, 1234};
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
  EXPECT_EQ(layer.forward().half_efficiency_tokens(), 4);
  EXPECT_EQ(layer.backward_ratio_full(), 2.5);
  EXPECT_EQ(file.profile().layers(1).name(), "head");
  EXPECT_EQ(file.profile().layers(1).peak().target_token_bytes(), 77);
  EXPECT_EQ(file.profile().cluster().intra_node_latency_ns(), 1234);
  EXPECT_EQ(file.profile().bytes_per_element(), 2U);
}

TEST(ProfileFile, RecomputeNeverSavesTimeWhateverWasMeasured) {
  MeasuredProfile measured;
  measured.layer.backward_ratio_none = 2;
  measured.layer.backward_ratio_full = 0.5;
  EXPECT_EQ(ToProto(measured, v1::ModelSpec()).layers(0).backward_ratio_full(), 2);
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
