#include "common/dataset/indexed_dataset_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "common/dataset/indexed_dataset.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kDtypeOffset = 17;

class WriterTest : public testing::Test {
 protected:
  std::unique_ptr<IndexedDatasetWriter> Create(uint32_t vocab = 0) {
    auto writer = IndexedDatasetWriter::Create(folder_.Path("d"), {.vocab = vocab});
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  }
  std::unique_ptr<IndexedDataset> Open() {
    auto dataset = IndexedDataset::Open(folder_.Path("d"));
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return *std::move(dataset);
  }
  char Dtype() { return folder_.Read("d.idx")[kDtypeOffset]; }

  TemporaryFolder folder_;
};

TEST_F(WriterTest, WhatIsWrittenIsRead) {
  std::mt19937 random(1);
  std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>> samples(500);
  auto writer = Create();
  for (auto& [input, target] : samples) {
    input.resize(random() % 40);
    target.resize(1 + random() % 40);
    for (int32_t& token : input) token = static_cast<int32_t>(random() % 65536);
    for (int32_t& token : target) token = static_cast<int32_t>(random() % 65536);
    ASSERT_TRUE(writer->Add(input, target).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  const auto dataset = Open();
  ASSERT_EQ(dataset->size(), samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    auto expected = samples[i].first;
    expected.insert(expected.end(), samples[i].second.begin(), samples[i].second.end());
    EXPECT_EQ(*dataset->Tokens(i), expected);
    EXPECT_EQ(dataset->Length(i).input, samples[i].first.size());
    EXPECT_EQ(dataset->Length(i).target, samples[i].second.size());
  }
}

TEST_F(WriterTest, StoresSmallTokensAsUint16) {
  auto writer = Create();
  ASSERT_TRUE(writer->Add({}, {0, 65535}).ok());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(Dtype(), 8);
  EXPECT_EQ(folder_.Read("d.bin").size(), 4u);
}

TEST_F(WriterTest, StoresALargeVocabularyAsInt32) {
  auto writer = Create(65537);
  ASSERT_TRUE(writer->Add({}, {1}).ok());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(Dtype(), 4);
}

TEST_F(WriterTest, WidensWhatItHasWrittenWhenALargeTokenComes) {
  auto writer = Create();
  ASSERT_TRUE(writer->Add({7, 8}, {9}).ok());
  ASSERT_TRUE(writer->Add({}, {1, 65536}).ok());
  ASSERT_TRUE(writer->Add({}, {3}).ok());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(Dtype(), 4);
  const auto dataset = Open();
  EXPECT_THAT(*dataset->Tokens(0), ElementsAre(7, 8, 9));
  EXPECT_THAT(*dataset->Tokens(1), ElementsAre(1, 65536));
  EXPECT_THAT(*dataset->Tokens(2), ElementsAre(3));
}

TEST_F(WriterTest, RefusesTokensOutsideTheVocabulary) {
  auto writer = Create(100);
  const absl::Status status = writer->Add({}, {99, 100});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("token 100 is not below the vocabulary of 100"));
  EXPECT_EQ(writer->Add({}, {-1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->Add({}, {}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WriterTest, WithoutFinishNothingIsLeft) {
  ASSERT_TRUE(Create()->Add({}, {1, 70000}).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.Path("")));
}

TEST_F(WriterTest, AnAbandonedRewriteKeepsTheOldDataset) {
  auto writer = Create();
  ASSERT_TRUE(writer->Add({}, {5}).ok());
  ASSERT_TRUE(writer->Finish().ok());
  ASSERT_TRUE(Create()->Add({}, {6}).ok());
  EXPECT_THAT(*Open()->Tokens(0), ElementsAre(5));
}

TEST_F(WriterTest, NamesTheFileItCannotCreate) {
  const auto writer = IndexedDatasetWriter::Create("/proc/nowhere/d", {});
  EXPECT_FALSE(writer.ok());
  EXPECT_THAT(std::string(writer.status().message()), HasSubstr("/proc/nowhere"));
}

TEST_F(WriterTest, LinksStayAndTheFilesTheyNameAreWritten) {
  std::filesystem::create_directory(folder_.Path("disk"));
  for (const char* name : {"d.bin", "d.idx"})
    std::filesystem::create_symlink(std::string("disk/") + name, folder_.Path(name));
  auto writer = Create();
  ASSERT_TRUE(writer->Add({}, {1, 70000}).ok());
  ASSERT_TRUE(writer->Finish().ok());
  for (const char* name : {"d.bin", "d.idx"}) EXPECT_TRUE(std::filesystem::is_symlink(folder_.Path(name)));
  EXPECT_THAT(*Open()->Tokens(0), ElementsAre(1, 70000));
}

TEST_F(WriterTest, RefusesNamesThatAreFoldersBeforeAnySample) {
  for (const char* name : {"d.bin", "d.idx"}) {
    std::filesystem::create_directory(folder_.Path(name));
    const auto writer = IndexedDatasetWriter::Create(folder_.Path("d"), {});
    EXPECT_EQ(writer.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(writer.status().message()), HasSubstr(name));
    std::filesystem::remove(folder_.Path(name));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

}  // namespace
}  // namespace penstock
