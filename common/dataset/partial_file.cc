#include "common/dataset/partial_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/hash/crc32.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// Of the first `bytes` bytes, or of all where there are fewer. Not through a stream, whose buffer would hold
// what is cut off later.
absl::StatusOr<FileMark> ReadMark(int file, uint64_t bytes, const std::string& path) {
  std::vector<char> piece(1 << 16);
  FileMark mark;
  while (mark.bytes < bytes) {
    const size_t wanted = std::min<uint64_t>(piece.size(), bytes - mark.bytes);
    const ssize_t count = pread(file, piece.data(), wanted, static_cast<off_t>(mark.bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError("read", path);
    if (count == 0) break;
    const auto got = static_cast<size_t>(count);
    mark = {mark.bytes + got, Crc32({piece.data(), got}, mark.crc32)};
  }
  return mark;
}

}  // namespace

absl::Status MakeFolderOf(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make folder '", folder.string(), "'"));
}

absl::StatusOr<PartialFile> PartialFile::CreateFor(const std::string& final_path, const char* extension) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string target, FileToReplace(final_path));
  std::string path = absl::StrCat(target, extension);
  std::FILE* stream = std::fopen(path.c_str(), "w+be");
  if (stream == nullptr) return SystemError("create", path);
  return PartialFile(std::move(path), std::move(target), stream);
}

absl::StatusOr<PartialFile> PartialFile::OpenAt(const std::string& final_path, const char* extension,
                                                const FileMark& mark) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string target, FileToReplace(final_path));
  std::string path = absl::StrCat(target, extension);
  std::FILE* stream = std::fopen(path.c_str(), "r+be");
  if (stream == nullptr) return SystemError("open", path);
  PartialFile file(path, std::move(target), stream);
  file.Keep();
  PENSTOCK_ASSIGN_OR_RETURN(file.mark_, ReadMark(fileno(stream), mark.bytes, path));
  if (file.mark_.bytes < mark.bytes)
    return absl::DataLossError(absl::StrCat("'", path, "' is shorter than it was"));
  if (file.mark_ != mark) return absl::DataLossError(absl::StrCat("'", path, "' has changed"));
  if (ftruncate(fileno(stream), static_cast<off_t>(mark.bytes)) != 0) return SystemError("shorten", path);
  file.moved_ = true;
  return file;
}

absl::Status PartialFile::Remove(const std::string& final_path, const char* extension) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string target, FileToReplace(final_path));
  return RemoveFile(absl::StrCat(target, extension));
}

PartialFile::PartialFile(PartialFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      stream_(std::exchange(other.stream_, nullptr)),
      mark_(other.mark_),
      synced_(other.synced_),
      moved_(other.moved_),
      kept_(other.kept_) {}

PartialFile& PartialFile::operator=(PartialFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(target_, other.target_);
  std::swap(stream_, other.stream_);
  std::swap(mark_, other.mark_);
  std::swap(synced_, other.synced_);
  std::swap(moved_, other.moved_);
  std::swap(kept_, other.kept_);
  return *this;
}

PartialFile::~PartialFile() {
  if (stream_ == nullptr) return;
  if (kept_)
    std::fclose(stream_);
  else
    Discard();
}

void PartialFile::Discard() {
  std::fclose(std::exchange(stream_, nullptr));
  std::remove(path_.c_str());
}

absl::Status PartialFile::WriteBytes(absl::string_view bytes) {
  // Wherever a Read has stopped.
  if (moved_ && std::fseek(stream_, 0, SEEK_END) != 0) return SystemError("write", path_);
  moved_ = false;
  if (std::fwrite(bytes.data(), 1, bytes.size(), stream_) != bytes.size()) return SystemError("write", path_);
  mark_ = {mark_.bytes + bytes.size(), Crc32(bytes, mark_.crc32)};
  return absl::OkStatus();
}

absl::Status PartialFile::Sync() {
  if (synced_ == mark_) return absl::OkStatus();
  if (std::fflush(stream_) != 0 || fsync(fileno(stream_)) != 0) return SystemError("write", path_);
  synced_ = mark_;
  return absl::OkStatus();
}

absl::Status PartialFile::MoveIntoPlace() {
  if (std::rename(path_.c_str(), target_.c_str()) != 0) return SystemError("rename to", target_);
  std::fclose(std::exchange(stream_, nullptr));
  return absl::OkStatus();
}

}  // namespace penstock
