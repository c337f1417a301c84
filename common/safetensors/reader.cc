#include "common/safetensors/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/errors.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// The largest header that huggingface/safetensors reads.
constexpr uint64_t kMostHeaderBytes = 100'000'000;

absl::Status ReadAt(const std::string& path, int file, uint64_t offset, absl::Span<char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pread(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(path, "reading", errno);
    if (count == 0) return absl::UnavailableError(absl::StrCat("'", path, "' has become shorter"));
    bytes.remove_prefix(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  SafetensorsReader reader;
  reader.path_ = path;
  reader.file_ = FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (reader.file_.get() < 0) return FileError(path, "reading", errno);
  struct stat state = {};
  if (fstat(reader.file_.get(), &state) != 0) return FileError(path, "reading", errno);
  const auto size = static_cast<uint64_t>(state.st_size);
  uint64_t length = 0;
  if (S_ISREG(state.st_mode) && size >= kSafetensorsLengthBytes) {
    PENSTOCK_RETURN_IF_ERROR(
        ReadAt(path, reader.file_.get(), 0,
               absl::MakeSpan(reinterpret_cast<char*>(&length), kSafetensorsLengthBytes)));
  }
  if (length == 0 || length > kMostHeaderBytes || length > size - kSafetensorsLengthBytes)
    return absl::InvalidArgumentError(absl::StrCat("'", path, "': is no safetensors file, or is truncated"));
  std::string text(length, '\0');
  PENSTOCK_RETURN_IF_ERROR(ReadAt(path, reader.file_.get(), kSafetensorsLengthBytes, absl::MakeSpan(text)));
  reader.data_begin_ = kSafetensorsLengthBytes + length;
  auto tensors = ParseSafetensorsHeader(text, size - reader.data_begin_);
  if (!tensors.ok()) return AnnotateError(tensors.status(), absl::StrCat("'", path, "'"));
  reader.tensors_ = *std::move(tensors);
  return reader;
}

absl::Status SafetensorsReader::Read(const StoredTensor& tensor, uint64_t offset,
                                     absl::Span<char> bytes) const {
  return ReadAt(path_, file_.get(), data_begin_ + tensor.begin + offset, bytes);
}

}  // namespace penstock
