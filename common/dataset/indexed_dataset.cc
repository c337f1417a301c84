#include "common/dataset/indexed_dataset.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/dataset/index_format.h"
#include "common/dataset/mapped_file.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

using index_format::BytesOf;
using index_format::kHeaderBytes;
using index_format::TokenType;

// "'x.idx', offset 17: found dtype code 6, expected 4 (int32) or 8 (uint16)".
absl::Status Broken(const MappedFile& file, uint64_t offset, const std::string& found,
                    const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", file.path(), "', offset ", offset, ": found ", found, ", expected ", expected));
}

// Where the arrays of an index are. Read once; the arrays themselves stay in the file.
class Index {
 public:
  explicit Index(MappedFile file) : file_(std::move(file)) {}

  absl::Status ReadHeader();
  // `data_bytes`: size of the .bin file.
  absl::Status CheckSequences(uint64_t data_bytes, const std::string& data_path) const;
  absl::Status CheckDocuments() const;

  TokenType type() const { return type_; }
  uint64_t documents() const { return document_indices_ - 1; }
  int64_t FirstSequence(uint64_t document) const { return file_.Load<int64_t>(DocumentOffset(document)); }
  uint32_t Tokens(uint64_t sequence) const { return file_.Load<uint32_t>(LengthOffset(sequence)); }
  int64_t Pointer(uint64_t sequence) const { return file_.Load<int64_t>(PointerOffset(sequence)); }

 private:
  uint64_t LengthOffset(uint64_t sequence) const { return kHeaderBytes + 4 * sequence; }
  uint64_t PointerOffset(uint64_t sequence) const { return kHeaderBytes + 4 * sequences_ + 8 * sequence; }
  uint64_t DocumentOffset(uint64_t document) const { return kHeaderBytes + 12 * sequences_ + 8 * document; }
  absl::Status CheckSize() const;

  MappedFile file_;
  TokenType type_ = TokenType::kInt32;
  uint64_t sequences_ = 0;
  uint64_t document_indices_ = 0;
};

absl::Status Index::ReadHeader() {
  if (file_.size() < kHeaderBytes)
    return Broken(file_, file_.size(), "the end of the file",
                  absl::StrCat("a header of ", kHeaderBytes, " bytes"));
  if (file_.contents().substr(0, index_format::kMagic.size()) != index_format::kMagic)
    return Broken(file_, 0, "other bytes", "the magic \"MMIDIDX\\0\\0\" of an indexed dataset");
  const auto version = file_.Load<uint64_t>(index_format::kVersionOffset);
  if (version != index_format::kVersion)
    return Broken(file_, index_format::kVersionOffset, absl::StrCat("version ", version),
                  absl::StrCat("version ", index_format::kVersion));
  type_ = static_cast<TokenType>(file_.Load<uint8_t>(index_format::kDtypeOffset));
  if (type_ != TokenType::kInt32 && type_ != TokenType::kUint16)
    return Broken(file_, index_format::kDtypeOffset, absl::StrCat("dtype code ", static_cast<int>(type_)),
                  "4 (int32) or 8 (uint16)");
  sequences_ = file_.Load<uint64_t>(index_format::kSequencesOffset);
  document_indices_ = file_.Load<uint64_t>(index_format::kDocumentsOffset);
  return CheckSize();
}

absl::Status Index::CheckSize() const {
  // Far above any dataset; the products below cannot overflow.
  constexpr uint64_t kMost = uint64_t{1} << 48;
  if (sequences_ > kMost)
    return Broken(file_, index_format::kSequencesOffset, absl::StrCat(sequences_, " sequences"),
                  absl::StrCat("at most ", kMost));
  if (document_indices_ < 1 || document_indices_ > kMost)
    return Broken(file_, index_format::kDocumentsOffset, absl::StrCat(document_indices_, " document indices"),
                  absl::StrCat("from 1 to ", kMost));
  const uint64_t expected = DocumentOffset(document_indices_);
  if (file_.size() != expected)
    return Broken(file_, file_.size(), "the end of the file",
                  absl::StrCat("it at ", expected, " for ", sequences_, " sequences and ", document_indices_,
                               " document indices"));
  return absl::OkStatus();
}

absl::Status Index::CheckSequences(uint64_t data_bytes, const std::string& data_path) const {
  uint64_t end = 0;
  for (uint64_t s = 0; s < sequences_; ++s) {
    const auto tokens = file_.Load<int32_t>(LengthOffset(s));
    if (tokens < 0)
      return Broken(file_, LengthOffset(s), absl::StrCat("length ", tokens), "0 or more tokens");
    const int64_t pointer = Pointer(s);
    if (pointer < 0 || static_cast<uint64_t>(pointer) != end)
      return Broken(file_, PointerOffset(s), absl::StrCat("pointer ", pointer),
                    absl::StrCat(end, ", the end of the sequence before"));
    end += static_cast<uint64_t>(tokens) * BytesOf(type_);
  }
  if (end == data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", data_path, "', offset ", data_bytes,
                                                 ": found the end of the file, expected it at ", end, " as '",
                                                 file_.path(), "' says"));
}

absl::Status Index::CheckDocuments() const {
  if (FirstSequence(0) != 0)
    return Broken(file_, DocumentOffset(0), absl::StrCat("document index ", FirstSequence(0)), "0");
  for (uint64_t d = 0; d < documents(); ++d) {
    const int64_t first = FirstSequence(d), next = FirstSequence(d + 1);
    if (next < 0 || static_cast<uint64_t>(next) > sequences_)
      return Broken(file_, DocumentOffset(d + 1), absl::StrCat("document index ", next),
                    absl::StrCat("at most ", sequences_, ", the number of sequences"));
    if (next != first + 1 && next != first + 2)
      return Broken(file_, DocumentOffset(d + 1), absl::StrCat("document index ", next),
                    absl::StrCat(first + 1, " or ", first + 2, ": a document has 1 or 2 sequences"));
    uint64_t tokens = 0;
    for (int64_t s = first; s < next; ++s) tokens += Tokens(s);
    if (tokens == 0 || tokens > INT32_MAX)
      return Broken(file_, LengthOffset(first), absl::StrCat("a document of ", tokens, " tokens"),
                    "from 1 to 2147483647");
  }
  if (static_cast<uint64_t>(FirstSequence(documents())) != sequences_)
    return Broken(file_, DocumentOffset(documents()),
                  absl::StrCat("document index ", FirstSequence(documents())),
                  absl::StrCat(sequences_, ", the number of sequences"));
  return absl::OkStatus();
}

class MappedDataset final : public IndexedDataset {
 public:
  MappedDataset(Index index, MappedFile data) : index_(std::move(index)), data_(std::move(data)) {}

  size_t size() const override { return index_.documents(); }
  size_t bytes_per_token() const override { return BytesOf(index_.type()); }

  SampleLength Length(size_t sample) const override {
    const int64_t first = index_.FirstSequence(sample);
    if (index_.FirstSequence(sample + 1) - first == 1) return {0, index_.Tokens(first)};
    return {index_.Tokens(first), index_.Tokens(first + 1)};
  }

  std::vector<int32_t> Tokens(size_t sample) const override {
    const SampleLength length = Length(sample);
    // The two sequences of a document lie one behind the other.
    const auto offset = static_cast<size_t>(index_.Pointer(index_.FirstSequence(sample)));
    std::vector<int32_t> tokens(size_t{length.input} + length.target);
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = index_.type() == TokenType::kUint16 ? data_.Load<uint16_t>(offset + 2 * i)
                                                      : data_.Load<int32_t>(offset + 4 * i);
    return tokens;
  }

 private:
  const Index index_;
  const MappedFile data_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<IndexedDataset>> IndexedDataset::Open(const std::string& prefix) {
  PENSTOCK_ASSIGN_OR_RETURN(MappedFile index_file, MappedFile::Open(absl::StrCat(prefix, ".idx")));
  PENSTOCK_ASSIGN_OR_RETURN(MappedFile data_file, MappedFile::Open(absl::StrCat(prefix, ".bin")));
  Index index(std::move(index_file));
  PENSTOCK_RETURN_IF_ERROR(index.ReadHeader());
  PENSTOCK_RETURN_IF_ERROR(index.CheckSequences(data_file.size(), data_file.path()));
  PENSTOCK_RETURN_IF_ERROR(index.CheckDocuments());
  return std::make_unique<MappedDataset>(std::move(index), std::move(data_file));
}

}  // namespace penstock
