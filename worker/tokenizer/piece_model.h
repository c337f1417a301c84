// The vocabulary of tokenizer.json, and which of its pieces a word is made of.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::worker {

class PieceModel {
 public:
  virtual ~PieceModel() = default;

  // Adds the ids of the pieces of a word, which is not empty, in order.
  virtual void AddPieces(const std::string& word, std::vector<int32_t>& ids) const = 0;
  // Null: there is no such id.
  virtual const std::string* PieceOf(int32_t id) const = 0;
  // -1: there is no such piece.
  virtual int32_t IdOf(const std::string& piece) const = 0;
  virtual int32_t largest() const = 0;
};

// Byte pair encodings (Sennrich et al. 2016) over characters, with bytes for those that are unknown. Possible
// errors of both: INVALID_ARGUMENT (names the field).
absl::StatusOr<std::unique_ptr<PieceModel>> MakeMergedPieces(const nlohmann::json& model);
// The most probable pieces (Kudo 2018, "Subword regularization", section 3.2).
absl::StatusOr<std::unique_ptr<PieceModel>> MakeUnigramPieces(const nlohmann::json& model);

}  // namespace penstock::worker
