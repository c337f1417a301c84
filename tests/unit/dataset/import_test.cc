#include "common/dataset/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/dataset/indexed_dataset.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Compress(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  return path;
}

class ImportTest : public testing::Test {
 protected:
  absl::StatusOr<ImportSummary> Import(const std::vector<std::string>& paths,
                                       const ImportOptions& options = {}) {
    return ImportDataset(paths, folder_.Path("out"), options);
  }
  std::unique_ptr<IndexedDataset> Open() {
    auto dataset = IndexedDataset::Open(folder_.Path("out"));
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return *std::move(dataset);
  }
  void ExpectRefused(const std::string& line, const std::string& message) {
    const std::string path = folder_.Write("bad.jsonl", "{\"tokens\": [1]}\n\n" + line + "\n");
    const auto summary = Import({path});
    ASSERT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(summary.status().message()),
                AllOf(HasSubstr("bad.jsonl', line 3: "), HasSubstr(message)));
    EXPECT_FALSE(std::filesystem::exists(folder_.Path("out.idx")));
  }

  TemporaryFolder folder_;
};

constexpr char kLines[] = R"({"tokens": [5, 7, 9], "task": "a"}
{"id": {"x": [1, {"y": null}]}, "input": [1, 2], "target": [70000]}

{"text": "To é"}
{"input": [], "target": [4]})";

TEST_F(ImportTest, TakesAllFormsOfJsonLines) {
  const auto summary = Import({folder_.Write("a.jsonl", kLines)});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples, 4u);
  EXPECT_EQ(summary->input_tokens, 2u);
  EXPECT_EQ(summary->target_tokens, 10u);
  // The first token of a sample without an input has none before it.
  EXPECT_EQ(summary->predicted_tokens, 7u);
  EXPECT_EQ(summary->largest_token, 70000);
  const auto dataset = Open();
  EXPECT_THAT(*dataset->Tokens(0), ElementsAre(5, 7, 9));
  EXPECT_EQ(dataset->Length(0).input, 0u);
  EXPECT_THAT(*dataset->Tokens(1), ElementsAre(1, 2, 70000));
  EXPECT_EQ(dataset->Length(1).input, 2u);
  EXPECT_THAT(*dataset->Tokens(2), ElementsAre('T', 'o', ' ', 0xc3, 0xa9));
  EXPECT_EQ(dataset->Length(3).input, 0u);
}

TEST_F(ImportTest, LabelsAndMasksSayWhereLearningBegins) {
  const auto summary = Import({folder_.Write("a.jsonl", R"({"input_ids": [5, 7, 9], "labels": [-100, 7, 9]}
{"tokens": [1, 2, 3], "loss_mask": [0, 0, 1]}
{"tokens": [1, 2], "loss_mask": [true, true]}
{"tokens": [4, 6], "labels": [4, 6], "attention_mask": [1, 1]})")});
  ASSERT_TRUE(summary.ok()) << summary.status();
  const auto dataset = Open();
  EXPECT_THAT(*dataset->Tokens(0), ElementsAre(5, 7, 9));
  EXPECT_EQ(dataset->Length(0).input, 1u);
  EXPECT_EQ(dataset->Length(1).input, 2u);
  EXPECT_EQ(dataset->Length(2).input, 0u);
  EXPECT_EQ(dataset->Length(3).input, 0u);
}

TEST_F(ImportTest, RefusesWhatWouldBeLearntOtherwiseThanItIsAskedFor) {
  ExpectRefused(R"({"tokens": [1, 2, 3], "loss_mask": [1, 2, 1]})",
                "\"loss_mask\": entry 1 is 2, expected 0 or 1");
  ExpectRefused(R"({"tokens": [1, 2, 3], "labels": [-100, 2, 4]})", "\"labels\": entry 2 is 4");
  ExpectRefused(R"({"tokens": [1, 2], "labels": [-100, -100]})", "no token is learnt");
  ExpectRefused(R"({"tokens": [1, 2], "loss_mask": [1]})",
                "\"loss_mask\" has 1 entries and there are 2 tokens");
  ExpectRefused(R"({"input": [1], "target": [2], "labels": [2, 3]})",
                "\"labels\" has 2 entries and there are 1 tokens in \"target\"");
  ExpectRefused(R"({"text": "a", "loss_mask": [1]})", "\"loss_mask\" needs tokens");
  ExpectRefused(R"({"tokens": [1, 2], "weights": [1]})", "\"weights\" has 1 entries and there are 2 tokens");
  ExpectRefused(R"({"tokens": [1, 2], "weights": [1, -0.5]})", "field \"weights\": weight -0.5");
  ExpectRefused(R"({"tokens": [1, 2], "weights": 1})", "expected a list of numbers");
  ExpectRefused(R"({"tokens": [1, 2], "weight": [1, 2]})", "expected a number");
  ExpectRefused(R"({"tokens": [1, 2], "weight": 0})", "no token is learnt");
  ExpectRefused(R"({"tokens": [1, 2], "weight": 1e300})", "field \"weight\": weight 1e+300");
  ExpectRefused(R"({"tokens": [1], "labels": [1], "loss_mask": [1]})", "say the same");
  ExpectRefused(R"({"tokens": [1], "loss_weights": [0.5]})", "field \"loss_weights\"");
  ExpectRefused(R"({"tokens": [1], "input_ids": [1]})", "appears twice");
}

TEST_F(ImportTest, MasksAndWeightsAreKeptBesideTheTokens) {
  const auto summary =
      Import({folder_.Write("a.jsonl", R"({"input_ids": [5, 7, 9, 11], "labels": [-100, 7, -100, 11]}
{"tokens": [1, 2, 3], "weights": [0, 1, 0.25], "assistant_masks": [1, 1, 1]}
{"tokens": [1, 2], "weight": 3, "loss_mask": [1, 0]}
{"tokens": [4, 6]}
{"input": [1, 2], "target": [3, 4], "labels": [-100, 4]})")});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->weighted_samples, 4u);
  // 7 and 11, 2 and 3, nothing (a first token), 6, 4.
  EXPECT_EQ(summary->predicted_tokens, 6u);
  const auto dataset = Open();
  EXPECT_TRUE(dataset->has_weights());
  EXPECT_EQ(dataset->Length(0).input, 1u);
  EXPECT_THAT(*dataset->TargetWeights(0), ElementsAre(1, 0, 1));
  EXPECT_EQ(dataset->Length(1).input, 1u);
  EXPECT_THAT(*dataset->TargetWeights(1), ElementsAre(1, 0.25F));
  EXPECT_THAT(*dataset->TargetWeights(2), ElementsAre(3, 0));
  EXPECT_THAT(*dataset->TargetWeights(3), ElementsAre(1, 1));
  EXPECT_EQ(dataset->Length(4).input, 2u);
  EXPECT_THAT(*dataset->TargetWeights(4), ElementsAre(0, 1));
  EXPECT_THAT(*dataset->Tokens(4), ElementsAre(1, 2, 3, 4));
}

TEST_F(ImportTest, ParquetWithoutItsPartSaysWhatToInstall) {
  const auto summary = Import({folder_.Write("a.parquet", "PAR1")});
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(summary.status().message()),
              AllOf(HasSubstr("a.parquet"), HasSubstr("run deploy/setup parquet and build again")));
}

TEST_F(ImportTest, TakesCompressedJsonLines) {
  const auto summary = Import({Compress(folder_.Path("a.jsonl.gz"), kLines)});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(*Open()->Tokens(1), ElementsAre(1, 2, 70000));
}

TEST_F(ImportTest, RefusesTruncatedCompression) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "{\"tokens\": [" + std::to_string(i * 7919 % 10007) + "]}\n";
  Compress(folder_.Path("a.jsonl.gz"), text);
  const std::string bytes = folder_.Read("a.jsonl.gz");
  const auto summary = Import({folder_.Write("cut.jsonl.gz", bytes.substr(0, bytes.size() / 2))});
  ASSERT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument) << summary.status();
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("cut.jsonl.gz"));
}

TEST_F(ImportTest, NamesTheLineThatIsWrong) {
  ExpectRefused("{\"tokens\": [1, 2", "this is not JSON");
  ExpectRefused("{\"tokens\": [1, -2]}", "token -2 is negative");
  ExpectRefused("{\"tokens\": [1, 3000000000]}", "token 3000000000 is too large");
  ExpectRefused("{\"tokens\": [1.5]}", "found a fraction in field \"tokens\"");
  ExpectRefused("{\"tokens\": [[1]]}", "found a list in field \"tokens\"");
  ExpectRefused("{\"tokens\": \"abc\"}", "expected a list of token ids");
  ExpectRefused("{\"tokens\": []}", "the sample has no token");
  ExpectRefused("{\"text\": 5}", "expected a string");
  ExpectRefused("{\"text\": \"\"}", "the sample has no token");
  ExpectRefused("{\"input\": [1]}", "both \"input\" and \"target\"");
  ExpectRefused("{\"tokens\": [1], \"text\": \"a\"}", "expected one of");
  ExpectRefused("{\"tokens\": [1], \"tokens\": [2]}", "appears twice");
  ExpectRefused("{\"other\": [1]}", "expected one of");
  ExpectRefused("[1, 2]", "expected an object");
  ExpectRefused("7", "expected an object");
  ExpectRefused("{\"tokens\": [1]} x", "this is not JSON");
}

TEST_F(ImportTest, RefusesTokensBeyondTheVocabulary) {
  ImportOptions options;
  options.vocab = 9;
  const auto summary = Import({folder_.Write("a.jsonl", kLines)}, options);
  EXPECT_THAT(std::string(summary.status().message()),
              AllOf(HasSubstr("a.jsonl', line 1"), HasSubstr("token 9 ")));
}

TEST_F(ImportTest, TakesTheTextFilesOfAFolderInOrder) {
  folder_.Write("docs/b/second.txt", "second file");
  folder_.Write("docs/a.txt", "first file");
  folder_.Write("docs/image.png", std::string("\x89PNG\0\0", 6));
  folder_.Write("docs/empty.txt", "");
  folder_.Write("docs/.git/config", "hidden");
  const auto summary = Import({folder_.Path("docs")});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples, 2u);
  EXPECT_EQ(summary->files, 2u);
  EXPECT_EQ(summary->skipped_files, 2u);
  const auto tokens = *Open()->Tokens(0);
  EXPECT_EQ(std::string(tokens.begin(), tokens.end()), "first file");
}

TEST_F(ImportTest, NamesThePathThatIsMissing) {
  const auto summary = Import({folder_.Path("absent")});
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("absent"));
}

TEST_F(ImportTest, RefusesFilesWithoutAnySample) {
  EXPECT_EQ(Import({folder_.Write("a.jsonl", "\n\n")}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("out.bin.partial")));
}

// Whoever reads a line, samples come in the order of the lines.
TEST_F(ImportTest, WithTokenizersLinesAndTextFilesAreTokensInTheirOrder) {
  std::string lines;
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&lines, "{\"text\": \"", i, "\"}\n");
  FakeTokenizer first, second, third;
  const auto summary =
      Import({folder_.Write("lines.jsonl", lines), folder_.Write("story.txt", std::string(100, 'a'))},
             {.tokenizers = {&first, &second, &third}});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples, 2001u);
  const auto dataset = Open();
  for (size_t i = 0; i < 2000; ++i) {
    std::string text;
    const std::vector<int32_t> tokens = *dataset->Tokens(i);
    ASSERT_EQ(tokens.front(), 1);
    ASSERT_EQ(tokens.back(), 2);
    EXPECT_EQ(std::string(tokens.begin() + 1, tokens.end() - 1), absl::StrCat(i));
  }
  EXPECT_EQ(dataset->Length(2000).target, 102u);
}

TEST_F(ImportTest, NamesTheLineThatATokenizerRefuses) {
  FakeTokenizer first, second;
  const std::string path = folder_.Write("bad.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"b!\"}\n");
  const auto summary = Import({path}, {.tokenizers = {&first, &second}});
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("bad.jsonl', line 3: no '!' here"));
}

TEST_F(ImportTest, AShareOfTheLinesIsForValidation) {
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += "{\"tokens\": [" + std::to_string(i) + ", 1]}\n";
  ImportOptions options = {.validation_share = 0.1, .validation_prefix = folder_.Path("validation")};
  const auto summary = Import({folder_.Write("a.jsonl", lines)}, options);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples + summary->validation_samples, 2000);
  EXPECT_NEAR(static_cast<double>(summary->validation_samples), 200, 40);
  EXPECT_EQ(summary->validation_tokens, 2 * summary->validation_samples);
  // Each line is in one of them, in order, and spread over all.
  const auto first_tokens = [&](const char* name) {
    std::vector<int32_t> tokens;
    const auto dataset = IndexedDataset::Open(folder_.Path(name));
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    for (size_t i = 0; dataset.ok() && i < (*dataset)->size(); ++i)
      tokens.push_back((*dataset)->Tokens(i)->front());
    return tokens;
  };
  std::vector<int32_t> all = first_tokens("out");
  const std::vector<int32_t> kept = first_tokens("validation");
  EXPECT_EQ(kept.size(), summary->validation_samples);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  EXPECT_LT(kept.front(), 100);
  EXPECT_GT(kept.back(), 1900);
  all.insert(all.end(), kept.begin(), kept.end());
  std::sort(all.begin(), all.end());
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], i);
}

TEST_F(ImportTest, AShareThatLeavesNothingIsRefused) {
  ImportOptions options = {.validation_share = 1e-9, .validation_prefix = folder_.Path("validation")};
  const auto summary = Import({folder_.Write("a.jsonl", "{\"tokens\": [1, 2]}\n")}, options);
  EXPECT_THAT(std::string(summary.status().message()),
              testing::HasSubstr("of 1 samples none would be for validation"));
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("out.idx")));
}

}  // namespace
}  // namespace penstock
