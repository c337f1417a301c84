#include "common/dataset/line_reader.h"

#include <zlib.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr size_t kBufferBytes = 1 << 18;
constexpr size_t kLongestLine = size_t{256} << 20;

}  // namespace

absl::StatusOr<LineReader> LineReader::Open(const std::string& path) {
  errno = 0;
  gzFile file = gzopen(path.c_str(), "rbe");
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open '", path, "'"));
  return LineReader(path, file);
}

LineReader::LineReader(LineReader&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, nullptr)),
      buffer_(std::move(other.buffer_)),
      position_(other.position_),
      line_number_(other.line_number_) {}

LineReader::~LineReader() {
  if (file_ != nullptr) gzclose(file_);
}

uint64_t LineReader::bytes_read() const {
  const z_off_t offset = gzoffset(file_);
  return offset < 0 ? 0 : static_cast<uint64_t>(offset);
}

absl::StatusOr<bool> LineReader::Fill() {
  buffer_.resize(kBufferBytes);
  position_ = 0;
  const int count = gzread(file_, buffer_.data(), kBufferBytes);
  int code = Z_OK;
  const char* message = gzerror(file_, &code);
  if (count < 0 || (count == 0 && code != Z_OK && code != Z_STREAM_END))
    return absl::InvalidArgumentError(
        absl::StrCat("'", path_, "', behind line ", line_number_, ": ", message));
  buffer_.resize(static_cast<size_t>(count));
  return count > 0;
}

absl::StatusOr<bool> LineReader::Next(std::string* line) {
  line->clear();
  bool found = false;
  for (;;) {
    if (position_ == buffer_.size()) {
      PENSTOCK_ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) break;
    }
    found = true;
    const size_t end = buffer_.find('\n', position_);
    line->append(buffer_, position_, end - position_);
    position_ = end == std::string::npos ? buffer_.size() : end + 1;
    if (end != std::string::npos) break;
    if (line->size() > kLongestLine)
      return absl::InvalidArgumentError(
          absl::StrCat("'", path_, "', line ", line_number_ + 1, ": longer than 256 MiB"));
  }
  if (found) ++line_number_;
  return found;
}

}  // namespace penstock
