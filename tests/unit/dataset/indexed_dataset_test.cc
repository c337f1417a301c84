// The reader against files built byte by byte from the documented format, whole and damaged.
#include "common/dataset/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
void Put(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

// Three sequences: 3 tokens, 2 tokens, 1 token; two documents: {0, 1} and {2}.
struct Index {
  std::string magic{"MMIDIDX\0\0", 9};
  uint64_t version = 1;
  uint8_t dtype = 8;
  uint64_t sequences = 3;
  uint64_t document_indices = 3;
  std::vector<int32_t> lengths = {3, 2, 1};
  std::vector<int64_t> pointers = {0, 6, 10};
  std::vector<int64_t> documents = {0, 2, 3};

  std::string Bytes() const {
    std::string bytes = magic;
    Put(bytes, version);
    Put(bytes, dtype);
    Put(bytes, sequences);
    Put(bytes, document_indices);
    for (int32_t length : lengths) Put(bytes, length);
    for (int64_t pointer : pointers) Put(bytes, pointer);
    for (int64_t document : documents) Put(bytes, document);
    return bytes;
  }
};

std::string Uint16Tokens() {
  std::string bytes;
  for (uint16_t token : {1, 2, 3, 40000, 5, 65535}) Put(bytes, token);
  return bytes;
}

class IndexedDatasetTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<IndexedDataset>> Open(const std::string& index, const std::string& tokens) {
    folder_.Write("d.idx", index);
    folder_.Write("d.bin", tokens);
    return IndexedDataset::Open(folder_.Path("d"));
  }

  // The message names the file, the offset, what was found and what was expected.
  void ExpectRefused(const std::string& index, const std::string& place, const std::string& found,
                     const std::string& expected) {
    const auto dataset = Open(index, Uint16Tokens());
    ASSERT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument) << dataset.status();
    EXPECT_THAT(
        std::string(dataset.status().message()),
        AllOf(HasSubstr("d.idx', offset " + place + ": found " + found), HasSubstr("expected " + expected)));
  }

  TemporaryFolder folder_;
};

TEST_F(IndexedDatasetTest, ReadsUint16BuiltFromTheDocumentedFormat) {
  const auto dataset = Open(Index().Bytes(), Uint16Tokens());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->size(), 2u);
  EXPECT_EQ((*dataset)->Length(0).input, 3u);
  EXPECT_EQ((*dataset)->Length(0).target, 2u);
  EXPECT_EQ((*dataset)->Length(1).input, 0u);
  EXPECT_EQ((*dataset)->Length(1).target, 1u);
  EXPECT_THAT(*(*dataset)->Tokens(0), ElementsAre(1, 2, 3, 40000, 5));
  EXPECT_THAT(*(*dataset)->Tokens(1), ElementsAre(65535));
}

TEST_F(IndexedDatasetTest, ReadsInt32BuiltFromTheDocumentedFormat) {
  Index index;
  index.dtype = 4;
  index.pointers = {0, 12, 20};
  std::string tokens;
  for (int32_t token : {1, 2, 100000, 4, 5, 6}) Put(tokens, token);
  const auto dataset = Open(index.Bytes(), tokens);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(*(*dataset)->Tokens(0), ElementsAre(1, 2, 100000, 4, 5));
}

TEST_F(IndexedDatasetTest, ReadsADatasetWithoutDocuments) {
  Index index;
  index.sequences = 0;
  index.document_indices = 1;
  index.lengths = {};
  index.pointers = {};
  index.documents = {0};
  const auto dataset = Open(index.Bytes(), "");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 0u);
}

TEST_F(IndexedDatasetTest, NamesTheFileThatIsMissing) {
  const auto dataset = IndexedDataset::Open(folder_.Path("absent"));
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(dataset.status().message()), HasSubstr("absent.idx"));
  folder_.Write("absent.idx", Index().Bytes());
  EXPECT_THAT(std::string(IndexedDataset::Open(folder_.Path("absent")).status().message()),
              HasSubstr("absent.bin"));
}

TEST_F(IndexedDatasetTest, RefusesAnEmptyIndex) { ExpectRefused("", "0", "the end", "a header of 34 bytes"); }

TEST_F(IndexedDatasetTest, RefusesEveryTruncationOfTheIndex) {
  const std::string whole = Index().Bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto dataset = Open(whole.substr(0, size), Uint16Tokens());
    EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument) << size;
  }
}

TEST_F(IndexedDatasetTest, RefusesALongerIndex) {
  ExpectRefused(Index().Bytes() + "x", "95", "the end", "it at 94");
}

TEST_F(IndexedDatasetTest, RefusesAnotherMagic) {
  Index index;
  index.magic[3] = 'X';
  ExpectRefused(index.Bytes(), "0", "other bytes", "the magic");
}

TEST_F(IndexedDatasetTest, RefusesAnotherVersion) {
  Index index;
  index.version = 2;
  ExpectRefused(index.Bytes(), "9", "version 2", "version 1");
}

TEST_F(IndexedDatasetTest, RefusesAnUnknownDtype) {
  Index index;
  index.dtype = 6;
  ExpectRefused(index.Bytes(), "17", "dtype code 6", "4 (int32) or 8 (uint16)");
}

// Megatron-LM's writer takes any of NumPy's.
TEST_F(IndexedDatasetTest, NamesTheDtypeThatIsNotRead) {
  Index index;
  index.dtype = 5;
  ExpectRefused(index.Bytes(), "17", "dtype code 5 (int64)",
                "4 (int32) or 8 (uint16): write the dataset again");
  index.dtype = 200;
  ExpectRefused(index.Bytes(), "17", "dtype code 200,", "4 (int32)");
}

TEST_F(IndexedDatasetTest, SaysThatADatasetIsMultimodal) {
  ExpectRefused(Index().Bytes() + std::string(3, '\1'), "94", "a mode for each sequence, as multimodal",
                "the end of the file: a dataset of text alone");
}

TEST_F(IndexedDatasetTest, SaysThatDocumentsAreOfSentences) {
  Index index;
  index.documents = {0, 3, 3};
  ExpectRefused(index.Bytes(), "78", "document index 3",
                "1 or 2: a document has 1 or 2 sequences, and no sentences");
}

TEST_F(IndexedDatasetTest, RefusesHugeCounts) {
  Index index;
  index.sequences = ~uint64_t{0} / 12;
  ExpectRefused(index.Bytes(), "18", "1537228672809129301 sequences", "at most 281474976710656");
  index = {};
  index.document_indices = ~uint64_t{0} / 8 + 2;
  ExpectRefused(index.Bytes(), "26", "2305843009213693953 document indices", "from 1 to 281474976710656");
  index.document_indices = 0;
  ExpectRefused(index.Bytes(), "26", "0 document indices", "from 1");
}

TEST_F(IndexedDatasetTest, RefusesANegativeLength) {
  Index index;
  index.lengths[1] = -2;
  ExpectRefused(index.Bytes(), "38", "length -2", "0 or more");
}

TEST_F(IndexedDatasetTest, RefusesPointersThatDoNotFollowTheLengths) {
  for (int64_t pointer : {int64_t{-6}, int64_t{0}, int64_t{5}, int64_t{8}, int64_t{1} << 62}) {
    Index index;
    index.pointers[1] = pointer;
    ExpectRefused(index.Bytes(), "54", "pointer " + std::to_string(pointer),
                  "6, the end of the sequence before");
  }
}

TEST_F(IndexedDatasetTest, RefusesDocumentsThatDoNotBeginAtZero) {
  Index index;
  index.documents[0] = 1;
  ExpectRefused(index.Bytes(), "70", "document index 1", "0");
}

TEST_F(IndexedDatasetTest, RefusesDocumentsOutOfRange) {
  for (int64_t document : {int64_t{-1}, int64_t{4}, int64_t{1} << 40}) {
    Index index;
    index.documents[1] = document;
    ExpectRefused(index.Bytes(), "78", "document index " + std::to_string(document), "at most 3");
  }
}

TEST_F(IndexedDatasetTest, RefusesDocumentsOfNoOrOfThreeSequences) {
  Index index;
  index.documents = {0, 0, 3};
  ExpectRefused(index.Bytes(), "78", "document index 0", "1 or 2: a document has 1 or 2 sequences");
  index.documents = {0, 3, 3};
  ExpectRefused(index.Bytes(), "78", "document index 3", "1 or 2: a document has 1 or 2 sequences");
}

TEST_F(IndexedDatasetTest, RefusesDocumentsThatLeaveSequencesOut) {
  Index index;
  index.documents = {0, 1, 2};
  ExpectRefused(index.Bytes(), "86", "document index 2", "3, the number of sequences");
}

TEST_F(IndexedDatasetTest, RefusesADocumentWithoutTokens) {
  Index index;
  index.lengths = {3, 3, 0};
  index.pointers = {0, 6, 12};
  ExpectRefused(index.Bytes(), "42", "a document of 0 tokens", "from 1");
}

TEST_F(IndexedDatasetTest, RefusesATruncatedOrLongerDataFile) {
  for (const std::string& tokens : {Uint16Tokens().substr(0, 11), Uint16Tokens() + "x"}) {
    const auto dataset = Open(Index().Bytes(), tokens);
    ASSERT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(dataset.status().message()),
        AllOf(HasSubstr("d.bin', offset " + std::to_string(tokens.size())), HasSubstr("expected it at 12")));
  }
}

TEST_F(IndexedDatasetTest, ADatasetThatIsCutWhileInUseIsAnErrorThatNamesTheFile) {
  const auto dataset = Open(Index().Bytes(), Uint16Tokens());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  for (const char* name : {"d.idx", "d.bin"}) std::filesystem::resize_file(folder_.Path(name), 4);
  EXPECT_EQ((*dataset)->Length(0).input, 3);
  for (const size_t sample : {0, 1}) {
    const absl::Status status = (*dataset)->Tokens(sample).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("d.bin'"), HasSubstr("12 bytes when it was opened")));
  }
}

TEST_F(IndexedDatasetTest, RefusesAFolderAsAFile) {
  folder_.Write("d.bin", Uint16Tokens());
  folder_.Write("d.idx/inside", "");
  EXPECT_EQ(IndexedDataset::Open(folder_.Path("d")).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock
