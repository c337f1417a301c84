#include "planner/cli/model/import_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/tensor_blocks.h"
#include "common/files/files.h"
#include "common/safetensors/writer.h"
#include "planner/cli/model/checkpoint_names.h"
#include "planner/cli/model/export_model.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/model/tensor_copy.h"
#include "planner/cli/model/tensor_set.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json SmallGpt2() {
  return Json::parse(R"({"model_type": "gpt2", "n_embd": 4, "n_head": 2, "n_layer": 1, "n_positions": 8,
                         "vocab_size": 11})");
}

// All tensors that the model asks for, of ascending numbers.
std::vector<TensorToWrite> TensorsOf(const Json& config) {
  std::vector<TensorToWrite> tensors;
  for (const TensorNames& names :
       CheckpointNames(ModelOfConfig("config.json", config)->spec, config["model_type"])) {
    for (const TensorPiece& piece : names.pieces)
      tensors.push_back({piece.name, "F32", ShapeOfPiece(names, piece)});
  }
  return tensors;
}

TEST(CheckpointNamesTest, AQwen2HasBiasesOfQueriesKeysAndValuesAlone) {
  const auto model = ModelOfConfig("config.json", Json::parse(R"({
      "model_type": "qwen2", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "vocab_size": 11,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16, "rope_theta": 1e6})"));
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<std::string> biases;
  for (const TensorNames& names : CheckpointNames(model->spec, kQwen2)) {
    for (const TensorPiece& piece : names.pieces) {
      if (absl::EndsWith(piece.name, ".bias")) biases.push_back(absl::StrCat(piece.name, " ", piece.rows));
    }
  }
  EXPECT_THAT(biases,
              ElementsAre("model.layers.0.self_attn.q_proj.bias 8", "model.layers.0.self_attn.k_proj.bias 4",
                          "model.layers.0.self_attn.v_proj.bias 4"));
}

class ImportModelTest : public ::testing::Test {
 protected:
  // `last_is_first`: the last tensor has the numbers of the first one.
  void WriteCheckpoint(const Json& config, const std::vector<TensorToWrite>& tensors,
                       bool last_is_first = false) const {
    folder_.Write("hf/config.json", config.dump());
    uint64_t bytes = 0;
    for (const TensorToWrite& tensor : tensors) bytes += tensor.bytes();
    std::vector<float> numbers(bytes / sizeof(float));
    std::iota(numbers.begin(), numbers.end(), 0.0F);
    if (last_is_first) std::copy_n(numbers.begin(), 44, numbers.end() - 44);
    auto writer = SafetensorsWriter::Create(folder_.Path("hf/model.safetensors"), tensors);
    ASSERT_TRUE(writer.ok()) << writer.status();
    const absl::string_view data(reinterpret_cast<const char*>(numbers.data()),
                                 numbers.size() * sizeof(float));
    ASSERT_TRUE(writer->Append(data).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }

  std::string Refusal() const {
    const auto imported = ImportModel(folder_.Path("hf"), folder_.Path("model"));
    return imported.ok() ? "" : std::string(imported.status().message());
  }

  std::vector<float> Imported(const std::string& name) const {
    const auto set = TensorSet::OpenRanks(folder_.Path("model/checkpoints/iteration-0"));
    EXPECT_TRUE(set.ok()) << set.status();
    const FoundTensor& found = set->tensors().at(name);
    std::vector<float> numbers(found.tensor->bytes() / sizeof(float));
    const auto read = found.file->Read(
        *found.tensor, 0, absl::MakeSpan(reinterpret_cast<char*>(numbers.data()), found.tensor->bytes()));
    EXPECT_TRUE(read.ok()) << read;
    return numbers;
  }

  const TemporaryFolder folder_;
};

TEST_F(ImportModelTest, TurnsTheMatricesOfAGpt2) {
  const std::vector<TensorToWrite> tensors = TensorsOf(SmallGpt2());
  WriteCheckpoint(SmallGpt2(), tensors);
  ASSERT_EQ(Refusal(), "");
  uint64_t begin = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (tensor.name == "transformer.h.0.mlp.c_fc.weight") break;
    begin += tensor.bytes() / sizeof(float);
  }
  // Of [4, 16], the columns.
  const std::vector<float> up = Imported("layers.0.ffn.up.weight");
  ASSERT_EQ(up.size(), 64U);
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 4; ++column)
      EXPECT_EQ(up[row * 4 + column], static_cast<float>(begin + column * 16 + row));
  }
}

TEST_F(ImportModelTest, TakesWhatWasSavedWithoutTheHead) {
  std::vector<TensorToWrite> tensors = TensorsOf(SmallGpt2());
  for (TensorToWrite& tensor : tensors) tensor.name = tensor.name.substr(std::string("transformer.").size());
  tensors.push_back({"h.0.attn.bias", "F32", {1, 1, 8, 8}});
  WriteCheckpoint(SmallGpt2(), tensors);
  EXPECT_EQ(Refusal(), "");
}

TEST_F(ImportModelTest, ReadsFilesThatAnIndexNames) {
  const std::vector<TensorToWrite> tensors = TensorsOf(SmallGpt2());
  WriteCheckpoint(SmallGpt2(), tensors);
  std::filesystem::rename(folder_.Path("hf/model.safetensors"), folder_.Path("hf/model-1.safetensors"));
  EXPECT_THAT(Refusal(), HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
  Json index;
  for (const TensorToWrite& tensor : tensors) index["weight_map"][tensor.name] = "model-1.safetensors";
  folder_.Write("hf/model.safetensors.index.json", index.dump());
  EXPECT_EQ(Refusal(), "");
  index["weight_map"]["more"] = "model-1.safetensors";
  folder_.Write("hf/model.safetensors.index.json", index.dump());
  EXPECT_THAT(Refusal(), HasSubstr("weight_map.more: 'model-1.safetensors' has no such tensor"));
  index["weight_map"]["more"] = "../model-1.safetensors";
  folder_.Write("hf/model.safetensors.index.json", index.dump());
  EXPECT_THAT(Refusal(), HasSubstr("weight_map.more: \"../model-1.safetensors\"; must name a file"));
}

TEST_F(ImportModelTest, NamesTheTensorThatIsMissingOrTooMuchOrOfAnotherShape) {
  std::vector<TensorToWrite> tensors = TensorsOf(SmallGpt2());
  tensors.push_back({"transformer.h.1.ln_1.weight", "F32", {4}});
  WriteCheckpoint(SmallGpt2(), tensors);
  EXPECT_THAT(Refusal(), HasSubstr("tensor 'transformer.h.1.ln_1.weight' is none of the model"));
  tensors.pop_back();
  tensors.back().shape = {5};
  WriteCheckpoint(SmallGpt2(), tensors);
  EXPECT_THAT(Refusal(), HasSubstr("tensor 'transformer.ln_f.bias' is [5]; by config.json it is [4]"));
  tensors.pop_back();
  WriteCheckpoint(SmallGpt2(), tensors);
  EXPECT_THAT(Refusal(), HasSubstr("has no tensor 'transformer.ln_f.bias'"));
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("model"))) << "nothing is written of what is refused";
}

TEST_F(ImportModelTest, ATiedHeadIsTheTokenTableOrRefused) {
  const Json config = SmallGpt2();
  std::vector<TensorToWrite> tensors = TensorsOf(config);
  tensors.push_back({"lm_head.weight", "F32", {11, 4}});
  // Ascending numbers: no two tensors are equal.
  WriteCheckpoint(config, tensors);
  EXPECT_THAT(
      Refusal(),
      HasSubstr("tensor 'lm_head.weight' is not 'transformer.wte.weight', to which config.json ties it"));
  tensors.back() = {"lm_head.weight", "F32", {11, 5}};
  WriteCheckpoint(config, tensors);
  EXPECT_THAT(Refusal(), HasSubstr("tensor 'lm_head.weight' is not 'transformer.wte.weight'"));

  tensors.back() = {"lm_head.weight", "F32", {11, 4}};
  WriteCheckpoint(config, tensors, /*last_is_first=*/true);
  EXPECT_EQ(Refusal(), "");
}

TEST_F(ImportModelTest, NamesABrokenFile) {
  WriteCheckpoint(SmallGpt2(), TensorsOf(SmallGpt2()));
  const std::string file = folder_.Path("hf/model.safetensors");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_THAT(Refusal(), HasSubstr("hf/model.safetensors': the entry of tensor"));
  std::filesystem::resize_file(file, 20);
  EXPECT_THAT(Refusal(), HasSubstr("hf/model.safetensors': is no safetensors file, or is truncated"));
}

TEST_F(ImportModelTest, DoesNotWriteOverACheckpoint) {
  WriteCheckpoint(SmallGpt2(), TensorsOf(SmallGpt2()));
  ASSERT_EQ(Refusal(), "");
  EXPECT_THAT(Refusal(), HasSubstr("model/checkpoints' has checkpoints: name another folder"));
  ASSERT_TRUE(ExportModel({.from = folder_.Path("model"), .to = folder_.Path("back")}).ok());
  EXPECT_THAT(
      std::string(
          ExportModel({.from = folder_.Path("model"), .to = folder_.Path("back")}).status().message()),
      HasSubstr("back' has a config.json: name another folder"));
}

// The columns of matrices, and the elements of vectors, in two parts.
TEST_F(ImportModelTest, ExportsWhatNoRankHasWhole) {
  WriteCheckpoint(SmallGpt2(), TensorsOf(SmallGpt2()));
  ASSERT_EQ(Refusal(), "");
  std::vector<TensorToWrite> parts;
  std::string data;
  const auto set = TensorSet::OpenRanks(folder_.Path("model/checkpoints/iteration-0"));
  ASSERT_TRUE(set.ok()) << set.status();
  for (const auto& [name, found] : set->tensors()) {
    const std::vector<float> numbers = Imported(name);
    const Block whole = WholeBlock(found.tensor->shape);
    for (const auto& [first, end] : {std::pair(int64_t{0}, int64_t{1}), {int64_t{1}, whole.columns()}}) {
      const Block part = {0, whole.rows(), first, end};
      const bool vector = found.tensor->shape.size() == 1;
      parts.push_back(
          {vector ? IntervalName(name, first, end) : BlockName(name, part), "F32",
           vector ? std::vector<int64_t>{end - first} : std::vector<int64_t>{part.rows(), part.columns()}});
      for (const penstock::Run& run : RunsOf(part, {whole, 0, whole.columns()}, {part, 0, part.columns()}))
        data.append(reinterpret_cast<const char*>(&numbers[static_cast<size_t>(run.from)]),
                    static_cast<size_t>(run.count) * sizeof(float));
    }
  }
  const auto write = [&](const std::string& to, size_t count) {
    const std::string folder = folder_.Path(to);
    std::filesystem::create_directories(std::filesystem::path(ImportedTensors(folder)).parent_path());
    auto writer = SafetensorsWriter::Create(ImportedTensors(folder),
                                            {parts.begin(), parts.begin() + static_cast<ptrdiff_t>(count)});
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; ++i) bytes += parts[i].bytes();
    EXPECT_TRUE(writer->Append(absl::string_view(data).substr(0, bytes)).ok());
    EXPECT_TRUE(writer->Finish().ok());
    EXPECT_TRUE(WriteModel(folder, ModelOfConfig("config.json", SmallGpt2())->spec).ok());
    EXPECT_TRUE(CompleteImport(folder).ok());
    return ExportModel({.from = folder, .to = absl::StrCat(folder, "-exported")}).status();
  };
  ASSERT_TRUE(ExportModel({.from = folder_.Path("model"), .to = folder_.Path("whole")}).ok());
  const absl::Status divided = write("divided", parts.size());
  ASSERT_TRUE(divided.ok()) << divided;
  EXPECT_EQ(*ReadFile(folder_.Path("divided-exported/model.safetensors")),
            *ReadFile(folder_.Path("whole/model.safetensors")));
  EXPECT_THAT(std::string(write("incomplete", parts.size() - 1).message()),
              HasSubstr("of the shape that model.json asks for"));
}

// What training does not change goes out as it came in.
TEST_F(ImportModelTest, AnExportHasTheFilesAndFieldsThatTheImportHad) {
  Json config = SmallGpt2();
  config["eos_token_id"] = {501, 502};
  config["task_specific_params"] = {{"text-generation", {{"max_length", 50}}}};
  WriteCheckpoint(config, TensorsOf(config));
  folder_.Write("hf/generation_config.json", R"({"eos_token_id": [501, 502]})");
  folder_.Write("hf/tokenizer.json", "{}");
  folder_.Write("hf/pytorch_model.bin", "other weights");
  folder_.Write("hf/onnx/model.json", "of a folder");
  const auto imported = ImportModel(folder_.Path("hf"), folder_.Path("model"));
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->files.kept, ElementsAre("config.json", "generation_config.json", "tokenizer.json"));

  const auto exported = ExportModel({.from = folder_.Path("model"), .to = folder_.Path("back")});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->kept_files, ElementsAre("generation_config.json", "tokenizer.json"));
  EXPECT_THAT(exported->config_changes, IsEmpty());
  EXPECT_EQ(Json::parse(*ReadFile(folder_.Path("back/config.json"))), config);
  EXPECT_EQ(*ReadFile(folder_.Path("back/generation_config.json")), R"({"eos_token_id": [501, 502]})");
}

TEST_F(ImportModelTest, AnExportSaysHowItsConfigurationDiffers) {
  Json config = SmallGpt2();
  config["torch_dtype"] = "float32";
  WriteCheckpoint(config, TensorsOf(config));
  ASSERT_EQ(Refusal(), "");
  v1::ModelSpec model = *ReadModel(folder_.Path("model"));
  model.set_dtype(v1::DATA_TYPE_BFLOAT16);
  ASSERT_TRUE(WriteModel(folder_.Path("model"), model).ok());
  auto exported = ExportModel({.from = folder_.Path("model"), .to = folder_.Path("rounded")});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->config_changes, ElementsAre(R"(torch_dtype: "bfloat16" (was "float32"))"));
  config["torch_dtype"] = "bfloat16";
  EXPECT_EQ(Json::parse(*ReadFile(folder_.Path("rounded/config.json"))), config);

  model.set_norm_epsilon(0.5);
  ASSERT_TRUE(WriteModel(folder_.Path("model"), model).ok());
  exported = ExportModel({.from = folder_.Path("model"), .to = folder_.Path("other")});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->config_changes, ElementsAre("all of it: the model is another one"));
  EXPECT_EQ(Json::parse(*ReadFile(folder_.Path("other/config.json")))["layer_norm_epsilon"], 0.5);
}

TEST_F(ImportModelTest, AModelKeepsWhatAnotherKeepsAndNothingElse) {
  folder_.Write("one/hugging_face/tokenizer.json", "1");
  folder_.Write("two/hugging_face/old.json", "2");
  ASSERT_TRUE(KeepFilesOf(folder_.Path("one"), folder_.Path("two")).ok());
  EXPECT_EQ(*ReadFile(KeptFile(folder_.Path("two"), "tokenizer.json")), "1");
  EXPECT_FALSE(std::filesystem::exists(KeptFile(folder_.Path("two"), "old.json")));
  ASSERT_TRUE(KeepFilesOf(folder_.Path("two"), folder_.Path("two")).ok());
  EXPECT_EQ(*ReadFile(KeptFile(folder_.Path("two"), "tokenizer.json")), "1") << "of itself it keeps all";
  ASSERT_TRUE(KeepFilesOf(folder_.Path("none"), folder_.Path("two")).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("two/hugging_face")));
}

TEST_F(ImportModelTest, ExportNamesWhatIsNotThere) {
  const auto refusal = [&] {
    return std::string(
        ExportModel({.from = folder_.Path("run"), .to = folder_.Path("back")}).status().message());
  };
  EXPECT_THAT(refusal(), HasSubstr("run/model.json' is not there: name the folder of a run"));
  folder_.Write("run/model.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("run/checkpoints' has no complete checkpoint"));
}

}  // namespace
}  // namespace penstock::cli
