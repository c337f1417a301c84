#include "worker/checkpoint/tensor_piece.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

// What a name stands for.
struct Elements {
  std::string name;
  // Nothing: all of them.
  std::optional<int64_t> begin;
};

Elements ElementsOf(const std::string& name) {
  const size_t bracket = name.rfind('[');
  const size_t colon = name.find(':', bracket == std::string::npos ? 0 : bracket);
  int64_t begin = 0;
  if (bracket == std::string::npos || colon == std::string::npos ||
      !absl::SimpleAtoi(name.substr(bracket + 1, colon - bracket - 1), &begin) || begin < 0) {
    return {name, std::nullopt};
  }
  return {name.substr(0, bracket), begin};
}

// A tensor of the file, as elements of a whole one.
struct Stored {
  std::string entry;
  int64_t begin = 0;
  int64_t end = 0;
  bool whole = false;
};

std::vector<Stored> StoredOf(const TensorFile& file, const std::string& name) {
  std::vector<Stored> found;
  // Names in order: that of the whole tensor, then those of its pieces.
  const auto& entries = file.entries();
  for (auto entry = entries.lower_bound(name); entry != entries.end() && entry->first.starts_with(name);
       ++entry) {
    const Elements elements = ElementsOf(entry->first);
    if (elements.name != name) continue;
    int64_t count = 1;
    for (const int64_t size : entry->second.shape) count *= size;
    const int64_t begin = elements.begin.value_or(0);
    found.push_back({entry->first, begin, begin + count, !elements.begin.has_value()});
  }
  return found;
}

// Reads what `stored` has of `piece`; what lies before and after it stays missing.
absl::Status ReadOverlap(const TensorFile& file, const Stored& stored, const MissingPiece& piece,
                         std::vector<MissingPiece>& missing) {
  if (stored.whole && !piece.sizes.empty())
    PENSTOCK_RETURN_IF_ERROR(file.CheckShape(stored.entry, piece.sizes));
  const int64_t end = piece.begin + piece.destination.numel();
  const int64_t first = std::max(piece.begin, stored.begin);
  const int64_t last = std::min(end, stored.end);
  const auto part = [&](int64_t from, int64_t to) {
    return MissingPiece{piece.name, piece.sizes, from,
                        piece.destination.narrow(0, from - piece.begin, to - from)};
  };
  PENSTOCK_RETURN_IF_ERROR(
      file.ReadElements(stored.entry, first - stored.begin, part(first, last).destination));
  if (piece.begin < first) missing.push_back(part(piece.begin, first));
  if (last < end) missing.push_back(part(last, end));
  return absl::OkStatus();
}

}  // namespace

NamedTensor PieceOf(const std::string& name, at::IntArrayRef sizes, int64_t begin, const at::Tensor& values) {
  if (values.numel() == c10::multiply_integers(sizes)) return {name, values.view(sizes)};
  return {absl::StrCat(name, "[", begin, ":", begin + values.numel(), "]"), values};
}

std::vector<MissingPiece> PiecesToRead(const std::vector<NamedTensor>& tensors) {
  std::vector<MissingPiece> missing;
  for (const NamedTensor& tensor : tensors) {
    Elements elements = ElementsOf(tensor.name);
    const bool whole = !elements.begin.has_value();
    missing.push_back({.name = std::move(elements.name),
                       .sizes = whole ? tensor.value.sizes().vec() : std::vector<int64_t>(),
                       .begin = elements.begin.value_or(0),
                       .destination = tensor.value.view({-1})});
  }
  return missing;
}

absl::Status ReadPieces(const TensorFile& file, std::vector<MissingPiece>& missing) {
  std::vector<MissingPiece> pieces = std::exchange(missing, {});
  while (!pieces.empty()) {
    const MissingPiece piece = std::move(pieces.back());
    pieces.pop_back();
    const std::vector<Stored> stored = StoredOf(file, piece.name);
    const auto overlap = std::ranges::find_if(stored, [&](const Stored& candidate) {
      return candidate.begin < piece.begin + piece.destination.numel() && piece.begin < candidate.end;
    });
    if (overlap == stored.end()) {
      missing.push_back(piece);
    } else {
      // What is left of it may be in another piece of this file.
      PENSTOCK_RETURN_IF_ERROR(ReadOverlap(file, *overlap, piece, pieces));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock::worker
