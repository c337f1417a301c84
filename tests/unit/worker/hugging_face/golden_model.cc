#include "tests/unit/worker/hugging_face/golden_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/files.h"
#include "planner/cli/model/export_model.h"
#include "planner/cli/model/import_model.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/model/tensor_set.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

// The folder with the tensors.
std::string Import(const std::string& from, const std::string& to) {
  const auto imported = cli::ImportModel(from, to);
  EXPECT_TRUE(imported.ok()) << imported.status();
  const auto folder = cli::OpenModelFolder(to);
  EXPECT_TRUE(folder.ok()) << folder.status();
  return folder.ok() ? folder->checkpoint : "";
}

}  // namespace

std::string GoldenFolder(const std::string& name) { return absl::StrCat(PENSTOCK_GOLDEN_FOLDER, "/", name); }

GoldenModel ImportGolden(const std::string& name, const std::string& folder) {
  const std::string from = GoldenFolder(name);
  GoldenModel golden;
  golden.parameters = Import(from, absl::StrCat(folder, "/parameters"));
  golden.gradients = Import(from + "/gradients", absl::StrCat(folder, "/gradients"));
  const auto spec = cli::OpenModelFolder(absl::StrCat(folder, "/parameters"));
  if (!spec.ok()) return golden;
  const auto config = ModelFromProto(spec->model);
  EXPECT_TRUE(config.ok()) << config.status();
  if (config.ok()) golden.config = *config;
  const auto text = ReadFile(from + "/expected.json");
  EXPECT_TRUE(text.ok()) << text.status();
  const auto expected = nlohmann::json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(expected.is_object());
  if (!expected.is_object()) return golden;
  golden.loss = expected["loss"];
  golden.generated = expected["generated"].get<std::vector<int32_t>>();
  for (const auto& sample : expected["samples"]) {
    golden.samples.push_back(
        {sample["input"].get<std::vector<int32_t>>(), sample["target"].get<std::vector<int32_t>>()});
  }
  return golden;
}

void ExportGolden(const std::string& folder, const std::string& to, uint64_t most_file_bytes) {
  const auto exported = cli::ExportModel(
      {.from = absl::StrCat(folder, "/parameters"), .to = to, .most_file_bytes = most_file_bytes});
  ASSERT_TRUE(exported.ok()) << exported.status();
}

std::vector<std::string> TensorsOf(const std::string& folder) {
  const auto set = cli::TensorSet::OpenHuggingFace(folder);
  EXPECT_TRUE(set.ok()) << set.status();
  std::vector<std::string> tensors;
  if (!set.ok()) return tensors;
  for (const auto& [name, found] : set->tensors()) {
    std::string data(found.tensor->bytes(), '\0');
    const absl::Status read = found.file->Read(*found.tensor, 0, absl::MakeSpan(data));
    EXPECT_TRUE(read.ok()) << read;
    tensors.push_back(absl::StrCat(name, " ", found.tensor->type, " [",
                                   absl::StrJoin(found.tensor->shape, ", "), "] ", data));
  }
  return tensors;
}

}  // namespace penstock::worker
