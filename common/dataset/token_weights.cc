#include "common/dataset/token_weights.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/dataset/weights_format.h"
#include "common/hash/crc32.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

using weights_format::Header;

absl::Status NotOfThisDataset(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", path, "' ", why, ": import the dataset again, or remove the file if its tokens have no weights"));
}

absl::StatusOr<uint32_t> Crc32Of(const DataFile& file) {
  constexpr uint64_t kPiece = 1 << 20;
  std::string piece;
  uint32_t crc32 = 0;
  for (uint64_t offset = 0; offset < file.size(); offset += piece.size()) {
    piece.resize(std::min(kPiece, file.size() - offset));
    PENSTOCK_RETURN_IF_ERROR(file.Read(offset, piece.size(), piece.data()));
    crc32 = Crc32(piece, crc32);
  }
  return crc32;
}

bool IsWeight(float weight) { return std::isfinite(weight) && weight >= 0; }

absl::StatusOr<Header> ReadHeader(const DataFile& file, const DataFile& index, uint64_t tokens) {
  Header header;
  if (file.size() < sizeof(Header)) return NotOfThisDataset(file.path(), "is cut short");
  PENSTOCK_RETURN_IF_ERROR(file.Read(0, sizeof(Header), &header));
  if (std::string_view(header.magic, sizeof(header.magic)) != weights_format::kMagic)
    return NotOfThisDataset(file.path(), "does not begin with \"PENSTWGT\"");
  if (header.version != weights_format::kVersion || header.distinct > weights_format::kMostDistinct)
    return NotOfThisDataset(file.path(), "is of a version that this program does not read");
  const uint64_t each = header.distinct > 0 ? sizeof(uint8_t) : sizeof(float);
  if (header.tokens != tokens ||
      file.size() != sizeof(Header) + header.distinct * sizeof(float) + tokens * each) {
    return NotOfThisDataset(file.path(), absl::StrCat("is of ", header.tokens, " tokens and ", file.size(),
                                                      " bytes, the dataset has ", tokens, " tokens"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t crc32, Crc32Of(index));
  if (header.index_crc32 != crc32)
    return NotOfThisDataset(file.path(), absl::StrCat("is not of '", index.path(), "', which is newer"));
  return header;
}

}  // namespace

absl::StatusOr<std::optional<TokenWeights>> TokenWeights::Open(const std::string& prefix,
                                                               const DataFile& index, uint64_t tokens) {
  absl::StatusOr<DataFile> file = DataFile::Open(absl::StrCat(prefix, ".weights"));
  if (absl::IsNotFound(file.status())) return std::optional<TokenWeights>();
  PENSTOCK_RETURN_IF_ERROR(file.status());
  PENSTOCK_ASSIGN_OR_RETURN(const Header header, ReadHeader(*file, index, tokens));
  std::vector<float> distinct(header.distinct);
  PENSTOCK_RETURN_IF_ERROR(file->Read(sizeof(Header), distinct.size() * sizeof(float), distinct.data()));
  if (!std::ranges::all_of(distinct, IsWeight))
    return NotOfThisDataset(file->path(), "holds a number that is no weight");
  return std::optional<TokenWeights>(TokenWeights(*std::move(file), std::move(distinct)));
}

absl::StatusOr<std::vector<float>> TokenWeights::Read(uint64_t first, size_t count) const {
  const uint64_t begin = sizeof(Header) + distinct_.size() * sizeof(float);
  std::vector<float> weights(count);
  if (distinct_.empty()) {
    PENSTOCK_RETURN_IF_ERROR(
        file_.Read(begin + first * sizeof(float), count * sizeof(float), weights.data()));
    if (std::ranges::all_of(weights, IsWeight)) return weights;
    return NotOfThisDataset(file_.path(), "holds a number that is no weight");
  }
  std::vector<uint8_t> codes(count);
  PENSTOCK_RETURN_IF_ERROR(file_.Read(begin + first, count, codes.data()));
  for (size_t i = 0; i < count; ++i) {
    if (codes[i] >= distinct_.size())
      return NotOfThisDataset(file_.path(), "names a weight that it does not have");
    weights[i] = distinct_[codes[i]];
  }
  return weights;
}

}  // namespace penstock
