// Files that pyarrow wrote (golden/), as `penstock dataset import` reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/dataset/import.h"
#include "common/dataset/indexed_dataset.h"
#include "common/dataset/parquet_lines.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Golden(const std::string& name) { return std::string(PENSTOCK_GOLDEN) + "/" + name; }

absl::StatusOr<std::vector<std::string>> Rows(const std::string& path) {
  auto rows = ParquetLines::Open(PENSTOCK_PARQUET, path);
  if (!rows.ok()) return rows.status();
  std::vector<std::string> all;
  for (std::string line;;) {
    const auto more = rows->Next(&line);
    if (!more.ok()) return more.status();
    if (!*more) return all;
    all.push_back(line);
    EXPECT_EQ(rows->line_number(), all.size());
  }
}

// Two row groups. What is null and the column of bytes are left out.
TEST(ParquetTest, RowsAreLinesOfJson) {
  const auto rows = Rows(Golden("tokens.parquet"));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(*rows, ElementsAre(R"({"input_ids":[5,7,9],"labels":[-100,7,-100],"weight":0.5,"source":"a"})",
                                 R"({"input_ids":[1,2,3],"labels":[1,2,3]})",
                                 R"({"input_ids":[4],"labels":[4],"weight":1,"source":"a"})"));
}

TEST(ParquetTest, MessagesAreListsOfObjects) {
  const auto rows = Rows(Golden("chats.parquet"));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(
      *rows,
      ElementsAre(R"({"messages":[{"role":"user","content":"A"},{"role":"assistant","content":"B"}]})",
                  R"({"messages":[{"role":"user","content":"é\n"},{"role":"assistant","content":"D"}]})"));
}

TEST(ParquetTest, AFolderOfShardsIsImportedInOrder) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.Path("shards/.hidden"));
  for (const char* name : {"shards/1.parquet", "shards/0.parquet", "shards/.hidden/2.parquet"})
    std::filesystem::copy_file(Golden("tokens.parquet"), folder.Path(name));
  folder.Write("shards/readme.txt", "no data");
  ImportOptions options;
  options.format = ImportFormat::kParquet;
  options.parquet_program = PENSTOCK_PARQUET;
  const auto summary = ImportDataset({folder.Path("shards")}, folder.Path("out"), options);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples, 6u);
  EXPECT_EQ(summary->files, 2u);
  const auto dataset = *IndexedDataset::Open(folder.Path("out"));
  EXPECT_THAT(*dataset->Tokens(3), ElementsAre(5, 7, 9));
  EXPECT_THAT(*dataset->TargetWeights(3), ElementsAre(0.5F, 0));
}

TEST(ParquetTest, AnImportOfShardsGoesOnBehindThoseThatAreRead) {
  const TemporaryFolder folder;
  folder.Write("shards/1.parquet", "PAR1 and so on");
  std::filesystem::copy_file(Golden("tokens.parquet"), folder.Path("shards/0.parquet"));
  ImportOptions options;
  options.parquet_program = PENSTOCK_PARQUET;
  options.save_every = absl::ZeroDuration();
  std::string goes_on_at;
  options.earlier = [&](const EarlierImport& earlier) { goes_on_at = earlier.file; };
  const auto import = [&] { return ImportDataset({folder.Path("shards")}, folder.Path("out"), options); };
  EXPECT_THAT(std::string(import().status().message()),
              AllOf(HasSubstr("1.parquet', behind row 0"), HasSubstr("the same command goes on there")));
  std::filesystem::copy_file(Golden("tokens.parquet"), folder.Path("shards/1.parquet"),
                             std::filesystem::copy_options::overwrite_existing);
  const auto summary = import();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(goes_on_at, folder.Path("shards/1.parquet"));
  EXPECT_EQ(summary->samples, 6u);
  EXPECT_EQ(summary->files, 2u);
  const auto dataset = *IndexedDataset::Open(folder.Path("out"));
  EXPECT_EQ(dataset->size(), 6u);
  EXPECT_THAT(*dataset->TargetWeights(3), ElementsAre(0.5F, 0));
}

TEST(ParquetTest, ConversationsAreLearntWithATokenizer) {
  const TemporaryFolder folder;
  FakeTokenizer tokenizer;
  ImportOptions options;
  options.tokenizers = {&tokenizer};
  options.parquet_program = PENSTOCK_PARQUET;
  const auto summary = ImportDataset({Golden("chats.parquet")}, folder.Path("out"), options);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples, 2u);
}

TEST(ParquetTest, ErrorsNameTheFileAndTheRow) {
  const TemporaryFolder folder;
  const auto cut = Rows(folder.Write("cut.parquet", "PAR1 and so on"));
  EXPECT_EQ(cut.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(cut.status().message()),
              AllOf(HasSubstr("cut.parquet', behind row 0"), HasSubstr("cannot be read as Parquet")));
  ImportOptions options;
  options.parquet_program = PENSTOCK_PARQUET;
  const auto no_tokens = ImportDataset({Golden("chats.parquet")}, folder.Path("out"), options);
  EXPECT_THAT(std::string(no_tokens.status().message()), HasSubstr("chats.parquet', row 1: expected one of"));
  EXPECT_THAT(std::string(Rows(folder.Path("none.parquet")).status().message()), HasSubstr("none.parquet"));
}

}  // namespace
}  // namespace penstock
