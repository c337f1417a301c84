// Pieces and their ids.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace penstock::worker {

class Vocabulary {
 public:
  // Of two pieces of one text the later id counts.
  void Add(const std::string& piece, int32_t id);
  // Finds the pieces <0x00> to <0xFF>. Once, behind all of Add.
  void FindBytes();

  // -1: it has none.
  int32_t IdOf(std::string_view piece) const;
  const std::string* PieceOf(int32_t id) const;
  int32_t largest() const { return static_cast<int32_t>(pieces_.size()) - 1; }
  // Adds an id for each byte; false, and nothing is added: one of them has none.
  bool AddBytes(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  absl::flat_hash_map<std::string, int32_t> ids_;
  // By id; empty where there is none.
  std::vector<std::string> pieces_;
  std::array<int32_t, 256> bytes_ = {};
};

}  // namespace penstock::worker
