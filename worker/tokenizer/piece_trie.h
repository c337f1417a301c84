// Which pieces a text begins with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace penstock::worker {

class PieceTrie {
 public:
  void Add(std::string_view piece, int32_t id) {
    uint32_t node = 0;
    for (const char c : piece) node = edges_.try_emplace(KeyOf(node, c), ++nodes_).first->second;
    if (node > 0) ids_[node] = id;
  }

  // Calls take(bytes, id) for each piece that the text begins with, the shortest first.
  template <typename Take>
  void ForEachBegin(std::string_view text, const Take& take) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto edge = edges_.find(KeyOf(node, text[i]));
      if (edge == edges_.end()) return;
      node = edge->second;
      const auto id = ids_.find(node);
      if (id != ids_.end()) take(i + 1, id->second);
    }
  }

 private:
  static uint64_t KeyOf(uint32_t node, char c) {
    return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c);
  }

  // Numbers of nodes need not be dense.
  uint32_t nodes_ = 0;
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  absl::flat_hash_map<uint32_t, int32_t> ids_;
};

}  // namespace penstock::worker
