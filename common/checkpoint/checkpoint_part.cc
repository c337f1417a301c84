#include "common/checkpoint/checkpoint_part.h"

#include <cerrno>
#include <cstddef>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/files/errors.h"
#include "common/hash/crc32.h"

namespace penstock {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

}  // namespace

absl::StatusOr<CheckpointPart> ReadPart(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return FileError(path, "opening", errno);
  CheckpointPart part;
  std::string piece(kPieceBytes, '\0');
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const auto bytes = static_cast<size_t>(file.gcount());
    part.crc32 = Crc32(absl::string_view(piece.data(), bytes), part.crc32);
    part.bytes += bytes;
  }
  if (!file.eof()) return absl::UnavailableError(absl::StrCat("'", path, "' cannot be read"));
  return part;
}

}  // namespace penstock
