// What the tensors of Hugging Face's checkpoints and of Penstock's have to do with each other: each of
// Penstock's (worker/model/parameters.h) is one of theirs, several below each other, or some rows of one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// A tensor of a Hugging Face checkpoint: `rows` rows of one of Penstock's.
struct TensorPiece {
  std::string name;
  int64_t rows = 0;
  // Stored as [columns, rows]: GPT-2's linear layers.
  bool transposed = false;
  // Where theirs has more rows than these: the first of them there, and how many it has; 0: no more.
  int64_t first_row = 0;
  int64_t whole_rows = 0;

  int64_t rows_of_whole() const { return whole_rows > 0 ? whole_rows : rows; }
};

struct TensorNames {
  // Of Penstock.
  std::string name;
  // 0: a vector, [rows].
  int64_t columns = 0;
  // In the order of the rows.
  std::vector<TensorPiece> pieces;

  int64_t rows() const;
  // As safetensors has it.
  std::vector<int64_t> shape() const;
};

// Of all parameters of the model, each once. `family`: model_type of a configuration that describes the
// model, or FamilyOf it (a T5 with tied_embeddings). Rows of one tensor follow each other.
std::vector<TensorNames> CheckpointNames(const v1::ModelSpec& model, const std::string& family);

}  // namespace penstock::cli
