#include "common/safetensors/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/errors.h"
#include "common/hash/crc32.h"
#include "common/safetensors/header.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr uint64_t kAlignment = 8;

absl::Status WriteAll(const std::string& path, int file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(path, "writing", errno);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t TensorToWrite::bytes() const {
  uint64_t bytes = ElementBytesOf(type);
  for (const int64_t extent : shape) bytes *= static_cast<uint64_t>(extent);
  return bytes;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::exchange(other.partial_, "")),
      file_(std::move(other.file_)),
      left_(other.left_),
      bytes_(other.bytes_),
      crc32_(other.crc32_) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (!partial_.empty()) std::remove(partial_.c_str());
}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                            const std::vector<TensorToWrite>& tensors) {
  SafetensorsWriter writer;
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};  // transformers asks for it
  for (const TensorToWrite& tensor : tensors) {
    const uint64_t begin = writer.left_;
    writer.left_ += tensor.bytes();
    header[tensor.name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {begin, writer.left_}}};
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  const uint64_t length = text.size();
  writer.path_ = path;
  const std::string partial = path + ".partial";
  writer.file_ = FileDescriptor(open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (writer.file_.get() < 0) return FileError(partial, "writing", errno);
  writer.partial_ = partial;
  const std::string begin(reinterpret_cast<const char*>(&length), sizeof(length));
  PENSTOCK_RETURN_IF_ERROR(writer.Write(begin + text));
  return writer;
}

absl::Status SafetensorsWriter::Write(absl::string_view bytes) {
  PENSTOCK_RETURN_IF_ERROR(WriteAll(partial_, file_.get(), bytes));
  bytes_ += bytes.size();
  crc32_ = Crc32(bytes, crc32_);
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Append(absl::string_view bytes) {
  if (bytes.size() > left_)
    return absl::InternalError(absl::StrCat("'", path_, "': more bytes than tensors"));
  left_ -= bytes.size();
  return Write(bytes);
}

absl::Status SafetensorsWriter::Flush() {
  return fdatasync(file_.get()) == 0 ? absl::OkStatus() : FileError(partial_, "writing", errno);
}

absl::Status SafetensorsWriter::Finish() {
  if (left_ > 0) return absl::InternalError(absl::StrCat("'", path_, "': ", left_, " bytes are missing"));
  if (fsync(file_.get()) != 0) return FileError(partial_, "writing", errno);
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) return FileError(path_, "writing", errno);
  partial_.clear();
  return absl::OkStatus();
}

}  // namespace penstock
