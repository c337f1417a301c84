#include "worker/checkpoint/tensor_piece.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

// What a piece has of one block of its slice: elements [begin, end) of the block, from `offset` of the
// piece's values on.
struct BlockPart {
  const HeldBlock* held = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;
};

std::vector<BlockPart> PartsOf(const TensorPiece& piece) {
  std::vector<BlockPart> parts;
  int64_t place = 0;
  for (const HeldBlock& held : piece.slice.blocks) {
    const int64_t begin = std::max(piece.begin, place);
    const int64_t end = std::min(piece.begin + piece.values.numel(), place + held.block.elements());
    if (begin < end) parts.push_back({&held, begin - place, end - place, begin - piece.begin});
    place += held.block.elements();
  }
  return parts;
}

// The part as an interval of the whole tensor, where it is one.
std::optional<int64_t> IntervalBegin(const BlockPart& part, const Block& whole) {
  const Block& block = part.held->block;
  if (block.columns() != whole.columns() && block.rows() != 1) return std::nullopt;
  return block.first_row * whole.columns() + block.first_column + part.begin;
}

void AppendEntries(const TensorSlice& slice, const BlockPart& part, const at::Tensor& flat,
                   std::vector<NamedTensor>& entries) {
  const Block whole = WholeBlock(slice.shape);
  const at::Tensor values = flat.narrow(0, part.offset, part.end - part.begin);
  if (values.numel() == whole.elements()) {
    entries.push_back({slice.name, values.view(slice.shape)});
  } else if (const std::optional<int64_t> begin = IntervalBegin(part, whole)) {
    entries.push_back({IntervalName(slice.name, *begin, *begin + values.numel()), values});
  } else {
    for (const LocatedBlock& located : LocatedBlocksOf(part.held->block, part.begin, part.end, 0)) {
      const Block& block = located.block;
      entries.push_back(
          {BlockName(slice.name, block),
           values.narrow(0, located.first, block.elements()).view({block.rows(), block.columns()})});
    }
  }
}

// An entry of the file, as blocks of a whole tensor.
struct StoredEntry {
  std::string name;
  std::vector<LocatedBlock> blocks;
};

absl::StatusOr<std::vector<StoredEntry>> StoredOf(const TensorFile& file, const MissingPiece& piece) {
  std::vector<StoredEntry> found;
  const auto add = [&](const std::string& name, const StoredTensor& stored) -> absl::Status {
    const EntryName entry = ParseEntryName(name);
    if (entry.tensor != piece.name) return absl::OkStatus();
    auto blocks = StoredBlocks(entry, stored.shape, piece.shape);
    if (!blocks.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", file.path(), "': tensor '", name, "' ", blocks.status().message()));
    }
    found.push_back({name, *std::move(blocks)});
    return absl::OkStatus();
  };
  const auto& entries = file.entries();
  if (const auto whole = entries.find(piece.name); whole != entries.end())
    PENSTOCK_RETURN_IF_ERROR(add(whole->first, whole->second));
  const std::string prefix = piece.name + "[";
  for (auto entry = entries.lower_bound(prefix); entry != entries.end() && entry->first.starts_with(prefix);
       ++entry) {
    PENSTOCK_RETURN_IF_ERROR(add(entry->first, entry->second));
  }
  return found;
}

// Reads what `stored` has of the piece's blocks, which are then what it has not.
absl::Status ReadOverlaps(const TensorFile& file, const std::string& entry, const LocatedBlock& stored,
                          StoredTypes types, MissingPiece& piece) {
  std::vector<LocatedBlock> left;
  for (const LocatedBlock& wanted : piece.blocks) {
    const std::optional<Block> both = Intersection(stored.block, wanted.block);
    if (!both.has_value()) {
      left.push_back(wanted);
      continue;
    }
    for (const Run& run : RunsOf(*both, stored, wanted)) {
      const at::Tensor destination = piece.destination.narrow(0, run.to, run.count);
      PENSTOCK_RETURN_IF_ERROR(types == StoredTypes::kSame
                                   ? file.ReadElements(entry, run.from, destination)
                                   : file.ReadConverted(entry, run.from, destination));
    }
    for (const Block& rest : Without(wanted.block, stored.block)) {
      const int64_t first = wanted.first + (rest.first_row - wanted.block.first_row) * wanted.stride +
                            rest.first_column - wanted.block.first_column;
      left.push_back({rest, first, wanted.stride});
    }
  }
  piece.blocks = std::move(left);
  return absl::OkStatus();
}

absl::Status ReadPiece(const TensorFile& file, StoredTypes types, MissingPiece& piece) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredEntry> entries, StoredOf(file, piece));
  for (const StoredEntry& entry : entries) {
    for (const LocatedBlock& stored : entry.blocks) {
      if (piece.blocks.empty()) return absl::OkStatus();
      PENSTOCK_RETURN_IF_ERROR(ReadOverlaps(file, entry.name, stored, types, piece));
    }
  }
  return absl::OkStatus();
}

}  // namespace

TensorSlice WholeSlice(const std::string& name, std::vector<int64_t> shape) {
  const Block whole = WholeBlock(shape);
  return {.name = name, .shape = std::move(shape), .blocks = {{.block = whole}}};
}

std::vector<NamedTensor> EntriesOf(const std::vector<TensorPiece>& pieces) {
  std::vector<NamedTensor> entries;
  for (const TensorPiece& piece : pieces) {
    const at::Tensor flat = piece.values.view({-1});
    for (const BlockPart& part : PartsOf(piece)) {
      if (!part.held->copy) AppendEntries(piece.slice, part, flat, entries);
    }
  }
  return entries;
}

std::vector<MissingPiece> PiecesToRead(const std::vector<TensorPiece>& pieces) {
  std::vector<MissingPiece> missing;
  for (const TensorPiece& piece : pieces) {
    MissingPiece& all = missing.emplace_back();
    all.name = piece.slice.name;
    all.shape = piece.slice.shape;
    all.destination = piece.values.view({-1});
    for (const BlockPart& part : PartsOf(piece)) {
      for (const LocatedBlock& located : LocatedBlocksOf(part.held->block, part.begin, part.end, part.offset))
        all.blocks.push_back(located);
    }
  }
  return missing;
}

absl::Status ReadPieces(const TensorFile& file, std::vector<MissingPiece>& missing, StoredTypes types) {
  for (MissingPiece& piece : missing) PENSTOCK_RETURN_IF_ERROR(ReadPiece(file, types, piece));
  std::erase_if(missing, [](const MissingPiece& piece) { return piece.blocks.empty(); });
  return absl::OkStatus();
}

}  // namespace penstock::worker
