#include "common/dataset/import_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

ImportState SomeState() {
  ImportOptions options;
  options.validation_share = 0.1;
  options.validation_prefix = "data/\xff held";
  ImportState state = {.shape = *ShapeOf(options)};
  state.files = {{.path = "in/\xc3\x28 \"a\".jsonl",
                  .kind = ImportFormat::kJsonLines,
                  .bytes = uint64_t{1} << 62,
                  .modified_ns = -5},
                 {.path = "in/b", .kind = ImportFormat::kText, .regular = false}};
  ImportMark& mark = state.latest;
  mark.point = {.file = 1, .items = 7, .counted = 9, .summary = {.samples = 3, .largest_token = 70000}};
  mark.writer = {.sequences = 4,
                 .widened = true,
                 .data = {.bytes = 12, .crc32 = 0xffffffff},
                 .lengths = {.bytes = 24, .crc32 = 1},
                 .weights = {.tokens = 3, .begun = true, .distinct = {0, 0.1F, 1e-30F}}};
  mark.validation = DatasetWriterMark();
  state.file_begin = mark;
  state.file_begin.point.items = 0;
  return state;
}

TEST(ImportStateTest, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  const std::string prefix = folder.Path("out");
  EXPECT_EQ(*ReadImportState(prefix), std::nullopt);
  const ImportState state = SomeState();
  ASSERT_TRUE(WriteImportState(prefix, state).ok());
  const auto read = ReadImportState(prefix);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(**read, state);
  ASSERT_TRUE(RemoveImportState(prefix).ok());
  EXPECT_EQ(*ReadImportState(prefix), std::nullopt);
}

// Whatever stands in a field, and whichever is missing.
TEST(ImportStateTest, FieldsOfAnotherTypeAreRefused) {
  const TemporaryFolder folder;
  const std::string prefix = folder.Path("out");
  ASSERT_TRUE(WriteImportState(prefix, SomeState()).ok());
  const auto fields = nlohmann::json::parse(folder.Read("out.import.json")).flatten();
  EXPECT_GT(fields.size(), 60u);
  for (const auto& [name, value] : fields.items()) {
    for (const nlohmann::json& other : {nlohmann::json(), nlohmann::json("\\"), nlohmann::json(-1.5)}) {
      // A weight may be any number.
      if (name.find("distinct") != std::string::npos && other.is_number()) continue;
      auto changed = fields;
      changed[name] = other;
      folder.Write("out.import.json", changed.unflatten().dump());
      EXPECT_EQ(ReadImportState(prefix).status().code(), absl::StatusCode::kInvalidArgument)
          << name << " " << other;
    }
  }
}

TEST(ImportStateTest, PointsBeyondTheFilesAreRefused) {
  const TemporaryFolder folder;
  ImportState state = SomeState();
  state.files.pop_back();
  ASSERT_TRUE(WriteImportState(folder.Path("out"), state).ok());
  EXPECT_FALSE(ReadImportState(folder.Path("out")).ok());
}

}  // namespace
}  // namespace penstock
