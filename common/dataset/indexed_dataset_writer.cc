#include "common/dataset/indexed_dataset_writer.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/dataset/index_format.h"
#include "common/dataset/system_error.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

using index_format::TokenType;

constexpr int32_t kLargestUint16 = std::numeric_limits<uint16_t>::max();

// A file under construction; removed with its scope unless it was put in place.
class PartialFile {
 public:
  // Aside from what is to become `final_path`, and beside the file that it links to if it is a link.
  static absl::StatusOr<PartialFile> CreateFor(const std::string& final_path, const char* extension) {
    PENSTOCK_ASSIGN_OR_RETURN(std::string target, FileToReplace(final_path));
    std::string path = absl::StrCat(target, extension);
    std::FILE* stream = std::fopen(path.c_str(), "w+be");
    if (stream == nullptr) return SystemError("create", path);
    return PartialFile(std::move(path), std::move(target), stream);
  }

  PartialFile(PartialFile&& other) noexcept
      : path_(std::move(other.path_)),
        target_(std::move(other.target_)),
        stream_(std::exchange(other.stream_, nullptr)) {}
  PartialFile& operator=(PartialFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(target_, other.target_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~PartialFile() {
    if (stream_ == nullptr) return;
    std::fclose(stream_);
    std::remove(path_.c_str());
  }

  template <typename T>
  absl::Status Write(const T* values, size_t count) {
    if (std::fwrite(values, sizeof(T), count, stream_) != count) return SystemError("write", path_);
    return absl::OkStatus();
  }

  template <typename T>
  absl::StatusOr<size_t> Read(T* values, size_t count) {
    const size_t read = std::fread(values, sizeof(T), count, stream_);
    if (std::ferror(stream_) != 0) return SystemError("read", path_);
    return read;
  }

  void Rewind() { std::rewind(stream_); }

  // Everything is on disk when this returns.
  absl::Status Sync() {
    if (std::fflush(stream_) != 0 || fsync(fileno(stream_)) != 0) return SystemError("write", path_);
    return absl::OkStatus();
  }

  absl::Status MoveIntoPlace() {
    if (std::rename(path_.c_str(), target_.c_str()) != 0) return SystemError("rename to", target_);
    std::fclose(std::exchange(stream_, nullptr));
    return absl::OkStatus();
  }

 private:
  PartialFile(std::string path, std::string target, std::FILE* stream)
      : path_(std::move(path)), target_(std::move(target)), stream_(stream) {}

  std::string path_;
  std::string target_;
  std::FILE* stream_ = nullptr;
};

class Writer final : public IndexedDatasetWriter {
 public:
  Writer(std::string prefix, const DatasetWriterOptions& options, PartialFile data)
      : prefix_(std::move(prefix)), options_(options), data_(std::move(data)) {
    if (options.vocab > static_cast<uint32_t>(kLargestUint16) + 1) type_ = TokenType::kInt32;
  }

  absl::Status Add(absl::Span<const int32_t> input, absl::Span<const int32_t> target) override {
    if (input.empty() && target.empty()) return absl::InvalidArgumentError("the sample has no token");
    PENSTOCK_RETURN_IF_ERROR(CheckTokens(input));
    PENSTOCK_RETURN_IF_ERROR(CheckTokens(target));
    if (!input.empty()) PENSTOCK_RETURN_IF_ERROR(AddSequence(input));
    PENSTOCK_RETURN_IF_ERROR(AddSequence(target));
    document_indices_.push_back(static_cast<int64_t>(lengths_.size()));
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    PENSTOCK_ASSIGN_OR_RETURN(PartialFile index,
                              PartialFile::CreateFor(absl::StrCat(prefix_, ".idx"), ".partial"));
    PENSTOCK_RETURN_IF_ERROR(WriteIndex(index));
    PENSTOCK_RETURN_IF_ERROR(index.Sync());
    PENSTOCK_RETURN_IF_ERROR(data_.Sync());
    PENSTOCK_RETURN_IF_ERROR(data_.MoveIntoPlace());
    return index.MoveIntoPlace();
  }

 private:
  absl::Status CheckTokens(absl::Span<const int32_t> tokens) {
    bool fits_uint16 = true;
    for (int32_t token : tokens) {
      if (token < 0) return absl::InvalidArgumentError(absl::StrCat("token ", token, " is negative"));
      if (options_.vocab > 0 && static_cast<uint32_t>(token) >= options_.vocab)
        return absl::InvalidArgumentError(
            absl::StrCat("token ", token, " is not below the vocabulary of ", options_.vocab));
      fits_uint16 = fits_uint16 && token <= kLargestUint16;
    }
    if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) / 2)
      return absl::InvalidArgumentError(absl::StrCat("a sequence of ", tokens.size(), " tokens is too long"));
    return !fits_uint16 && type_ == TokenType::kUint16 ? Widen() : absl::OkStatus();
  }

  absl::Status AddSequence(absl::Span<const int32_t> tokens) {
    lengths_.push_back(static_cast<int32_t>(tokens.size()));
    if (type_ == TokenType::kInt32) return data_.Write(tokens.data(), tokens.size());
    narrow_.assign(tokens.begin(), tokens.end());
    return data_.Write(narrow_.data(), narrow_.size());
  }

  // The first token beyond uint16: what was written so far becomes int32.
  absl::Status Widen() {
    PENSTOCK_ASSIGN_OR_RETURN(PartialFile wide,
                              PartialFile::CreateFor(absl::StrCat(prefix_, ".bin"), ".wide.partial"));
    std::vector<uint16_t> from(1 << 16);
    data_.Rewind();
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const size_t count, data_.Read(from.data(), from.size()));
      if (count == 0) break;
      const std::vector<int32_t> to(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
      PENSTOCK_RETURN_IF_ERROR(wide.Write(to.data(), count));
    }
    data_ = std::move(wide);
    type_ = TokenType::kInt32;
    return absl::OkStatus();
  }

  absl::Status WriteIndex(PartialFile& index) const {
    const uint64_t counts[] = {lengths_.size(), document_indices_.size()};
    PENSTOCK_RETURN_IF_ERROR(index.Write(index_format::kMagic.data(), index_format::kMagic.size()));
    PENSTOCK_RETURN_IF_ERROR(index.Write(&index_format::kVersion, 1));
    PENSTOCK_RETURN_IF_ERROR(index.Write(&type_, 1));
    PENSTOCK_RETURN_IF_ERROR(index.Write(counts, 2));
    PENSTOCK_RETURN_IF_ERROR(index.Write(lengths_.data(), lengths_.size()));
    int64_t pointer = 0;
    for (int32_t length : lengths_) {
      PENSTOCK_RETURN_IF_ERROR(index.Write(&pointer, 1));
      pointer += static_cast<int64_t>(length) * static_cast<int64_t>(index_format::BytesOf(type_));
    }
    return index.Write(document_indices_.data(), document_indices_.size());
  }

  const std::string prefix_;
  const DatasetWriterOptions options_;
  PartialFile data_;
  TokenType type_ = TokenType::kUint16;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> document_indices_ = {0};
  std::vector<uint16_t> narrow_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<IndexedDatasetWriter>> IndexedDatasetWriter::Create(
    const std::string& prefix, const DatasetWriterOptions& options) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make folder '", folder.string(), "'"));
  // Better now than after the import.
  PENSTOCK_RETURN_IF_ERROR(FileToReplace(absl::StrCat(prefix, ".idx")).status());
  PENSTOCK_ASSIGN_OR_RETURN(PartialFile data,
                            PartialFile::CreateFor(absl::StrCat(prefix, ".bin"), ".partial"));
  return std::make_unique<Writer>(prefix, options, std::move(data));
}

}  // namespace penstock
