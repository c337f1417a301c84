#include "worker/tokenizer/vocabulary.h"

#include <cstddef>

#include "absl/strings/str_format.h"

namespace penstock::worker {

void Vocabulary::Add(const std::string& piece, int32_t id) {
  ids_.insert_or_assign(piece, id);
  if (static_cast<size_t>(id) >= pieces_.size()) pieces_.resize(static_cast<size_t>(id) + 1);
  pieces_[static_cast<size_t>(id)] = piece;
}

void Vocabulary::FindBytes() {
  for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = IdOf(absl::StrFormat("<0x%02X>", i));
}

int32_t Vocabulary::IdOf(std::string_view piece) const {
  const auto found = ids_.find(absl::string_view(piece.data(), piece.size()));
  return found == ids_.end() ? -1 : found->second;
}

const std::string* Vocabulary::PieceOf(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < pieces_.size() ? &pieces_[static_cast<size_t>(id)] : nullptr;
}

bool Vocabulary::AddBytes(std::string_view text, std::vector<int32_t>& ids) const {
  for (const char c : text) {
    if (bytes_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : text) ids.push_back(bytes_[static_cast<uint8_t>(c)]);
  return true;
}

}  // namespace penstock::worker
