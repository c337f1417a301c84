// Adapters between Penstock's folders and PEFT's: names, blocks of modules that make several layers, merging.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/safetensors/writer.h"
#include "planner/cli/model/adapter_modules.h"
#include "planner/cli/model/checkpoint_names.h"
#include "planner/cli/model/export_model.h"
#include "planner/cli/model/float_elements.h"
#include "planner/cli/model/import_adapters.h"
#include "planner/cli/model/import_model.h"
#include "planner/cli/model/linear_layer_names.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/model/tensor_copy.h"
#include "planner/cli/model/tensor_set.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json TinyGpt2() {
  return Json::parse(R"({"model_type": "gpt2", "n_embd": 4, "n_head": 2, "n_layer": 2, "n_positions": 8,
                         "vocab_size": 11})");
}

// The numbers are small, and different.
std::vector<double> SomeValues(int64_t count, double first) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<double>(i % 13) / 16);
  return values;
}

void WriteTensors(const std::string& path, const std::vector<TensorToWrite>& tensors) {
  auto writer = SafetensorsWriter::Create(path, tensors);
  ASSERT_TRUE(writer.ok()) << writer.status();
  double first = 0.5;
  for (const TensorToWrite& tensor : tensors) {
    const auto count = static_cast<int64_t>(tensor.bytes() / 4);
    ASSERT_TRUE(writer->Append(FromDoubles(SomeValues(count, first), "F32")).ok());
    first += 0.25;
  }
  ASSERT_TRUE(writer->Finish().ok());
}

class AdapterFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<TensorToWrite> tensors;
    for (const TensorNames& names : CheckpointNames(ModelOfConfig("config.json", TinyGpt2())->spec, "gpt2")) {
      for (const TensorPiece& piece : names.pieces)
        tensors.push_back({piece.name, "F32", ShapeOfPiece(names, piece)});
    }
    ASSERT_TRUE(WriteFileAtomically(folder_.Path("hf/config.json"), TinyGpt2().dump()).ok());
    WriteTensors(folder_.Path("hf/model.safetensors"), tensors);
    ASSERT_TRUE(ImportModel(folder_.Path("hf"), folder_.Path("base")).ok());
  }

  // Adapters of PEFT's at c_attn, of rank 2; `config` over what they are usually.
  void WritePeft(const Json& config, uint32_t layers = 2) {
    Json all = {{"peft_type", "LORA"},
                {"r", 2},
                {"lora_alpha", 3.0},
                {"bias", "none"},
                {"target_modules", {"c_attn"}}};
    all.update(config);
    ASSERT_TRUE(WriteFileAtomically(folder_.Path("peft/adapter_config.json"), all.dump()).ok());
    std::vector<TensorToWrite> tensors;
    for (uint32_t layer = 0; layer < layers; ++layer) {
      const std::string name = absl::StrCat("base_model.model.transformer.h.", layer, ".attn.c_attn.lora_");
      tensors.push_back({name + "A.weight", "F32", {2, 4}});
      tensors.push_back({name + "B.weight", "F32", {12, 2}});
    }
    WriteTensors(folder_.Path("peft/adapter_model.safetensors"), tensors);
  }

  absl::StatusOr<ImportedAdapters> Import() {
    return ImportAdapters(folder_.Path("peft"), folder_.Path("base"), folder_.Path("adapted"));
  }

  std::vector<double> Values(const TensorSet& set, const std::string& name,
                             const std::vector<int64_t>& shape) {
    const auto found = set.Find(name, shape);
    EXPECT_TRUE(found.ok()) << found.status();
    return ToDoubles(*ReadBytes(*found), found->tensor->type);
  }

  TemporaryFolder folder_;
};

TEST_F(AdapterFolders, TakeAModuleOfThreeLayersApart) {
  WritePeft(Json::object());
  const auto imported = Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->adapters.rank(), 2);
  EXPECT_EQ(imported->adapters.alpha(), 3);
  EXPECT_EQ(NamesOf(imported->adapters), "q, k, v");
  const ModelFolder folder = *OpenModelFolder(folder_.Path("adapted"));
  const TensorSet own = *TensorSet::OpenRanks(folder.checkpoint);
  EXPECT_EQ(Values(own, "layers.1.attention.key.lora_a.weight", {2, 4}), SomeValues(8, 1.0));
  const std::vector<double> all = SomeValues(24, 1.25);
  EXPECT_EQ(Values(own, "layers.1.attention.key.lora_b.weight", {4, 2}),
            std::vector<double>(all.begin() + 8, all.begin() + 16));
  EXPECT_EQ(folder.base, folder_.Path("adapted/base"));
}

TEST_F(AdapterFolders, MergeWhatTheAdaptersAdd) {
  WritePeft(Json::object());
  ASSERT_TRUE(Import().ok());
  const auto exported =
      ExportModel({.from = folder_.Path("adapted"), .to = folder_.Path("merged"), .merge = true});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const TensorSet before = *TensorSet::OpenHuggingFace(folder_.Path("hf"));
  const TensorSet after = *TensorSet::OpenHuggingFace(folder_.Path("merged"));
  const std::string name = "transformer.h.0.attn.c_attn.weight";
  // [inputs, outputs].
  const std::vector<double> old_values = Values(before, name, {4, 12});
  const std::vector<double> new_values = Values(after, name, {4, 12});
  const std::vector<double> a = SomeValues(8, 0.5);
  const std::vector<double> b = SomeValues(24, 0.75);
  for (size_t in = 0; in < 4; ++in) {
    for (size_t out = 0; out < 12; ++out) {
      const double product = b[2 * out] * a[in] + b[2 * out + 1] * a[4 + in];
      EXPECT_NEAR(new_values[12 * in + out], old_values[12 * in + out] + 1.5 * product, 1e-5);
    }
  }
  EXPECT_EQ(Values(after, "transformer.wte.weight", {11, 4}),
            Values(before, "transformer.wte.weight", {11, 4}));
}

TEST_F(AdapterFolders, GiveBackWhatTheyTookApartInBlocks) {
  WritePeft(Json::object());
  ASSERT_TRUE(Import().ok());
  ASSERT_TRUE(ExportModel({.from = folder_.Path("adapted"), .to = folder_.Path("out")}).ok());
  const Json config = Json::parse(*ReadFile(folder_.Path("out/adapter_config.json")));
  EXPECT_EQ(config["rank_pattern"]["c_attn"], 6);
  EXPECT_EQ(config["alpha_pattern"]["c_attn"], 9);
  EXPECT_EQ(config["fan_in_fan_out"], true);
  // What Penstock wrote it reads as it was, and writes as it was.
  const auto again = ImportAdapters(folder_.Path("out"), folder_.Path("base"), folder_.Path("again"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->adapters.rank(), 2);
  ASSERT_TRUE(ExportModel({.from = folder_.Path("again"), .to = folder_.Path("twice")}).ok());
  EXPECT_EQ(*ReadFile(folder_.Path("out/adapter_model.safetensors")),
            *ReadFile(folder_.Path("twice/adapter_model.safetensors")));
}

TEST_F(AdapterFolders, RefuseWhatPenstockDoesNotHave) {
  const auto refusal = [&](const Json& config, uint32_t layers = 2) {
    WritePeft(config, layers);
    return std::string(Import().status().message());
  };
  EXPECT_THAT(refusal({{"peft_type", "IA3"}}), HasSubstr("peft_type is \"IA3\""));
  EXPECT_THAT(refusal({{"use_dora", true}}), HasSubstr("use_dora is true"));
  EXPECT_THAT(refusal({{"bias", "all"}}), HasSubstr("bias is \"all\""));
  EXPECT_THAT(refusal({{"modules_to_save", {"lm_head"}}}), HasSubstr("modules_to_save"));
  EXPECT_THAT(refusal({{"r", 4}}), HasSubstr("has rank 2, by adapter_config.json 4"));
  EXPECT_THAT(refusal(Json::object(), 1),
              HasSubstr("'transformer.h.1.attn.c_attn' has no adapter, as others like it have"));
  EXPECT_THAT(refusal(Json::object(), 3),
              HasSubstr("h.2.attn.c_attn.lora_A.weight' is of no linear layer of the model"));
}

TEST_F(AdapterFolders, AreNotMergedTwice) {
  const auto exported = ExportModel({.from = folder_.Path("base"), .to = folder_.Path("out"), .merge = true});
  EXPECT_THAT(std::string(exported.status().message()), HasSubstr("has no adapters"));
}

TEST(FloatElementsTest, AreRoundedToTheNearestAndHalvesToEven) {
  const auto through = [](double value, const char* type) {
    return ToDoubles(FromDoubles({value}, type), type).front();
  };
  EXPECT_EQ(through(1 + 1.0 / 256, "BF16"), 1);
  EXPECT_EQ(through(1 + 3.0 / 256, "BF16"), 1 + 2.0 / 128);
  EXPECT_EQ(through(1 + 1.01 / 256, "BF16"), 1 + 1.0 / 128);
  EXPECT_EQ(through(-2049, "F16"), -2048);
  EXPECT_EQ(through(6e-8, "F16"), 0x1p-24);
  EXPECT_EQ(through(65520, "F16"), INFINITY);
  EXPECT_EQ(through(65519, "F16"), 65504);
  EXPECT_EQ(through(0.1, "F32"), double{0.1F});
  EXPECT_EQ(through(0.1, "F64"), 0.1);
  EXPECT_TRUE(std::isnan(through(NAN, "BF16")));
}

TEST(LinearLayerNamesTest, AreThoseOfUsersAndOfTransformers) {
  v1::ModelSpec gated;
  gated.set_feed_forward(v1::FEED_FORWARD_GATED_SILU);
  EXPECT_THAT(*LinearLayersCalled("c_attn", gated),
              ElementsAre(v1::LINEAR_LAYER_QUERY, v1::LINEAR_LAYER_KEY, v1::LINEAR_LAYER_VALUE));
  EXPECT_THAT(*LinearLayersCalled("wo", gated), ElementsAre(v1::LINEAR_LAYER_DOWN));
  EXPECT_EQ(LinearLayersCalled("all-linear", gated)->size(), 7);
  EXPECT_EQ(LinearLayersCalled("all-linear", v1::ModelSpec())->size(), 6);
  EXPECT_THAT(std::string(LinearLayersCalled("gate_proj", v1::ModelSpec()).status().message()),
              HasSubstr("the model has no gate"));
  EXPECT_THAT(std::string(LinearLayersCalled("lm_head", gated).status().message()),
              HasSubstr("'lm_head' is no linear layer; known are q, k, v"));
}

}  // namespace
}  // namespace penstock::cli
