#include "common/dataset/dataset_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/dataset/import.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Another one with as many ids.
class ShiftedTokenizer : public FakeTokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text) override {
    auto tokens = FakeTokenizer::Encode(text);
    if (tokens.ok()) tokens->back() = 5;
    return tokens;
  }
};

class DatasetTokenizerTest : public ::testing::Test {
 protected:
  std::string Import(const std::string& name, TextTokenizer* tokenizer, const std::string& text = "abc") {
    ImportOptions options;
    if (tokenizer != nullptr) options.tokenizers = {tokenizer};
    const auto summary = ImportDataset({folder_.Write(name + ".txt", text)}, folder_.Path(name), options);
    EXPECT_TRUE(summary.ok()) << summary.status();
    return folder_.Path(name);
  }

  static absl::Status Check(const std::vector<std::string>& prefixes) {
    std::vector<std::unique_ptr<IndexedDataset>> opened;
    std::vector<PlacedDataset> placed;
    for (const std::string& prefix : prefixes) {
      auto dataset = IndexedDataset::Open(prefix);
      EXPECT_TRUE(dataset.ok()) << dataset.status();
      opened.push_back(*std::move(dataset));
      placed.push_back({prefix, opened.back().get()});
    }
    return CheckSameTokenizer(placed);
  }

  const TemporaryFolder folder_;
  FakeTokenizer letters_;
};

TEST_F(DatasetTokenizerTest, DatasetsOfOneTokenizerGoTogetherAndOthersAreNamed) {
  ShiftedTokenizer shifted;
  FakeTokenizer larger;
  larger.mutable_info().vocab = 256;
  const std::string a = Import("a", &letters_), b = Import("b", &letters_, "other text");
  EXPECT_TRUE(Check({a, b}).ok());
  for (TextTokenizer* other : {static_cast<TextTokenizer*>(&shifted), static_cast<TextTokenizer*>(&larger)}) {
    const std::string c = Import("c", other);
    EXPECT_THAT(std::string(Check({a, b, c}).message()),
                AllOf(HasSubstr("'" + c + "' was made with another tokenizer"), HasSubstr("than '" + a + "'"),
                      HasSubstr("dataset import --tokenizer")));
  }
}

TEST_F(DatasetTokenizerTest, WhatHasNoRecordIsNotCompared) {
  const std::string a = Import("a", &letters_), bytes = Import("bytes", nullptr);
  EXPECT_TRUE(Check({a, bytes}).ok());
  ShiftedTokenizer shifted;
  // Made anew without one.
  const std::string c = Import("c", &shifted);
  EXPECT_FALSE(Check({a, c}).ok());
  Import("c", nullptr);
  EXPECT_FALSE(std::filesystem::exists(c + ".tokenizer.json"));
  EXPECT_TRUE(Check({a, c}).ok());
}

TEST_F(DatasetTokenizerTest, ARecordOfOtherDataSaysNothing) {
  ShiftedTokenizer shifted;
  const std::string a = Import("a", &letters_), c = Import("c", &shifted),
                    longer = Import("d", nullptr, "abcdef");
  for (const char* file : {".idx", ".bin"})
    std::filesystem::copy_file(longer + file, c + file, std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(Check({a, c}).ok());
  for (const char* text : {"", "{}", "[]", R"({"version": 1})"}) {
    folder_.Write("a.tokenizer.json", text);
    EXPECT_TRUE(Check({a, c}).ok()) << text;
  }
}

}  // namespace
}  // namespace penstock
